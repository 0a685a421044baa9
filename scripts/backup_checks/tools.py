"""restic and borg as the documentation says to call them: what differs between the two, and nothing else."""

import glob
import os
import shlex


class Restic:
    name = "restic"
    # restic 0.14 ends with 0 where a source is missing and says so on stderr; later versions end with 3.
    missing_path_codes = (0, 3)
    # Later versions end with 12.
    wrong_password_codes = (1, 12)

    def environment(self, folder, repository, password):
        return {"RESTIC_REPOSITORY": f"{folder}/{repository}", "RESTIC_PASSWORD": password,
                "RESTIC_CACHE_DIR": f"{folder}/cache"}

    def init(self):
        return ["restic", "init", "--quiet"]

    def backup(self, *paths):
        return ["restic", "backup", "--json", *paths]

    def backup_stdin(self):
        return ["restic", "backup", "--json", "--stdin"]

    def prune(self):
        return ["restic", "forget", "--keep-last", "1", "--prune"]

    def verify(self):
        return ["restic", "check", "--read-data"]

    def restore(self, source, folder):
        """Restores the last snapshot and compares. The exit code of a difference must not be one that means a warning."""
        restored = shlex.quote(folder + source)
        return ["sh", "-c", f"restic restore latest --target {shlex.quote(folder)} && "
                            f"{{ diff -r {shlex.quote(source)} {restored} || exit 2; }}"]

    def damage_path(self, repository):
        """The largest file of data."""
        return max(glob.glob(f"{repository}/data/*/*"), key=os.path.getsize)


class Borg:
    name = "borg"
    missing_path_codes = (1,)
    # Version 1.4 can be told to end with 52.
    wrong_password_codes = (2, 52)

    def environment(self, folder, repository, password):
        return {"BORG_REPO": f"{folder}/{repository}", "BORG_PASSPHRASE": password, "BORG_BASE_DIR": f"{folder}/base",
                # The second repository of a job has been seen by nobody else.
                "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "no", "BORG_RELOCATED_REPO_ACCESS_IS_OK": "no"}

    def init(self):
        return ["borg", "init", "--encryption", "repokey"]

    def backup(self, *paths):
        return ["borg", "create", "--json", "::{now:%Y-%m-%dT%H:%M:%S.%f}", *paths]

    def backup_stdin(self):
        return self.backup("-")

    def prune(self):
        return ["sh", "-c", "borg prune --keep-last 1 && borg compact"]

    def verify(self):
        return ["borg", "check", "--verify-data"]

    def restore(self, source, folder):
        last = '"::$(borg list --last 1 --short)"'
        restored = shlex.quote(folder + source)
        return ["sh", "-c", f"mkdir -p {shlex.quote(folder)} && cd {shlex.quote(folder)} && borg extract {last} && "
                            f"{{ diff -r {shlex.quote(source)} {restored} || exit 2; }}"]

    def damage_path(self, repository):
        """The largest segment."""
        return max(glob.glob(f"{repository}/data/*/*"), key=os.path.getsize)


TOOLS = (Restic(), Borg())
