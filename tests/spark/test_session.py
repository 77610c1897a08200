"""A local session of Spark leaves nothing behind, and shares no folder with other users."""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import json, os, urllib.parse
from merlot_spark.session import create_session
spark = create_session("local[1]", is_short=True)
folder = urllib.parse.urlsplit(spark.conf.get("spark.sql.warehouse.dir")).path
spark.sql("CREATE TABLE numbers AS SELECT 1 AS n")
print(json.dumps([folder, os.listdir(folder), oct(os.stat(folder).st_mode & 0o777)]))
spark.stop()
"""


def test_the_warehouse_is_a_private_folder_that_ends_with_the_process() -> None:
    answer = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    folder, tables, mode = json.loads(answer.stdout)
    assert (tables, mode) == (["numbers"], "0o700")
    assert not Path(folder).exists()
