"""What is hashed and kept: manifests of versions, facts about them, and their strict reading."""
