"""The queue of tasks that minions run, and what its nodes hold."""
