"""Queue of the tasks that minions run, and the records of its nodes."""
