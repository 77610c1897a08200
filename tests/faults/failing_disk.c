/* A disk that fails now and then, for a process that has this library preloaded.

   MERLOT_DISK_CONTROL names a file of struct control, which a test maps too. Of the calls that read, write or sync a
   file below `folder`, so many of a hundred fail with EIO. Pages that are mapped are not touched. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

struct control {
    uint32_t reads, writes, syncs; /* of a hundred */
    uint32_t calls, failures;
    char folder[1004];
};

static struct control *map_control(void) {
    static struct control *mapped;
    if (mapped) return mapped;
    const char *path = getenv("MERLOT_DISK_CONTROL");
    if (!path) return NULL;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return NULL;
    void *pages = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (pages == MAP_FAILED) return NULL;
    return mapped = pages;
}

static int is_below(int fd, const char *folder) {
    char link[32], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path);
    size_t length = strlen(folder);
    return length > 0 && size > (ssize_t)length && !memcmp(path, folder, length) && path[length] == '/';
}

static int fails(int fd, size_t member) {
    int before = errno;
    struct control *control = map_control();
    uint32_t share = control ? *(uint32_t *)((char *)control + member) : 0;
    int answer = 0;
    if (share && is_below(fd, control->folder)) {
        uint32_t call = __atomic_add_fetch(&control->calls, 1, __ATOMIC_RELAXED);
        answer = (uint32_t)(call * 2654435761u) >> 16 < share * 65536u / 100;
        if (answer) __atomic_add_fetch(&control->failures, 1, __ATOMIC_RELAXED);
    }
    errno = answer ? EIO : before;
    return answer;
}

#define FAILING(type, name, fd, member, parameters, arguments)            \
    type name parameters {                                                \
        static type(*real) parameters;                                    \
        if (!real) real = (type(*) parameters)dlsym(RTLD_NEXT, #name);    \
        return fails(fd, offsetof(struct control, member)) ? -1 : real arguments; \
    }


FAILING(ssize_t, read, fd, reads, (int fd, void *data, size_t size), (fd, data, size))
FAILING(ssize_t, pread, fd, reads, (int fd, void *data, size_t size, off_t at), (fd, data, size, at))
FAILING(ssize_t, pread64, fd, reads, (int fd, void *data, size_t size, off64_t at), (fd, data, size, at))
FAILING(ssize_t, write, fd, writes, (int fd, const void *data, size_t size), (fd, data, size))
FAILING(ssize_t, pwrite, fd, writes, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
FAILING(ssize_t, pwrite64, fd, writes, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
FAILING(ssize_t, writev, fd, writes, (int fd, const struct iovec *parts, int count), (fd, parts, count))
FAILING(ssize_t, sendfile, to, writes, (int to, int from, off_t *at, size_t size), (to, from, at, size))
FAILING(ssize_t, sendfile64, to, writes, (int to, int from, off64_t *at, size_t size), (to, from, at, size))
FAILING(int, fsync, fd, syncs, (int fd), (fd))
FAILING(int, fdatasync, fd, syncs, (int fd), (fd))
