#: HOST/NAME:TAG stands for $IMAGE:$TAG
#: HOST/NAME stands for $IMAGE
#: sha256:… stands for $DIGEST
#: sha256:PLATFORM stands for $PLATFORM
#: sha256:MATERIALS stands for $MATERIALS
#: /path/to/files stands for "$PWD/files"
#: in_files runs openssl base64
#: in_files runs openssl dgst
#: in_files runs sha256sum
#: with_key runs cosign verify
#: with_materials runs cosign tree
#: with_registry runs make push

# The files are a release of this commit, and the image is in the registry. Somebody else signed both.
begin() {
	mkdir files
	openssl ecparam -name prime256v1 -genkey -noout -out theirs.key
	openssl ec -in theirs.key -pubout -out files/lockstep.pub
	with_registry make push VERSION=v0.1.0 "IMAGE=$IMAGE:$TAG" KEY=theirs.key
	make release VERSION=v0.1.0 "IMAGE=$IMAGE@$DIGEST" KEY=theirs.key
	cp dist/* files/ 2>/dev/null || [ -f files/checksums.txt.sig ]
	PLATFORM=$(digests "dist/image/blobs/sha256/${DIGEST#sha256:}" | head -n 1)
	MATERIALS=$(digests dist/image/index.json | sed -n 2p)
}

# digests prints the digests of an index.
digests() { grep -o '"digest": *"sha256:[0-9a-f]*' "$1" | grep -o 'sha256:.*'; }

in_files() { (cd files && "$@"); }

# with_key verifies with the key of the release. With another one, the same command has to fail.
with_key() {
	in_files "$@"
	openssl ecparam -name prime256v1 -genkey -noout -out other.key
	openssl ec -in other.key -pubout -out other.pub
	! in_files "${@/lockstep.pub/$PWD/other.pub}"
}

# with_materials shows the bill of materials of an image, which is a file of the release.
with_materials() {
	"$@" | tee tree
	grep -q "$MATERIALS" tree
	grep -qf <(sha256sum <"$(echo files/lockstep_*_linux_*.spdx.json)" | cut -d' ' -f1) tree
}
