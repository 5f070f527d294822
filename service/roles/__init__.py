"""The directory of a job's roles: which process is which instance of a role, under which epoch. Nothing here restarts one."""
