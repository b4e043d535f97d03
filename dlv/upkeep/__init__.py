"""Looking after a repository: fsck (`check`, `repair`), gc (`collect`), restore, doctor."""
