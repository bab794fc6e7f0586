#: HOST/NAME:TAG stands for $IMAGE:$TAG
#: HOST/NAME stands for $IMAGE
#: sha256:… stands for $DIGEST
#: /path/to/lockstep.pub stands for "$PWD/files/lockstep.pub"
#: /path/to/files stands for "$PWD/files"
#: /path/to/write stands for "$PWD/written"
#: in_files runs openssl base64
#: in_files runs openssl dgst
#: in_files runs sha256sum
#: with_key runs cosign verify
#: with_registry runs make push

# The files are a release of this commit, and the image is in the registry. Somebody else signed both.
begin() {
	mkdir files written
	openssl ecparam -name prime256v1 -genkey -noout -out theirs.key
	openssl ec -in theirs.key -pubout -out files/lockstep.pub
	with_registry make push VERSION=v0.1.0 "IMAGE=$IMAGE:$TAG" KEY=theirs.key
	make release VERSION=v0.1.0 "IMAGE=$IMAGE@$DIGEST" KEY=theirs.key
	cp dist/* files/ 2>/dev/null || [ -f files/checksums.txt.sig ]
}

in_files() { (cd files && "$@"); }

# with_key verifies with the key of the release. With another one, the same command has to fail.
with_key() {
	in_files "$@"
	openssl ecparam -name prime256v1 -genkey -noout -out other.key
	openssl ec -in other.key -pubout -out other.pub
	! in_files "${@/lockstep.pub/$PWD/other.pub}"
}
