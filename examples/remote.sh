#!/bin/sh
# Two people share a model: sh examples/remote.sh [URL]
# URL is a folder or s3://BUCKET/PREFIX; without it, a new folder is used.
set -eu

work=$(mktemp -d)
url=${1:-$work/models}
cd "$work"

# Ann has a repository with a few versions, and publishes them.
dlv demo ann
cd ann
dlv remote add origin "$url"
dlv publish lenet@2

# Bob clones it, trains on (here: a checkpoint that is ready), and publishes his version.
cd ..
dlv clone "$url" bob
cd bob
dlv checkout lenet@2
cp ../ann/step-700.safetensors .
dlv add step-700.safetensors
dlv commit -m 'Trained on by Bob'
dlv publish

# Ann fetches it, compares, and restores it next to her own files.
cd ../ann
dlv pull lenet
dlv diff lenet@2 lenet@latest
dlv checkout lenet@latest --to bobs-files
dlv fsck
