#: HOST/NAME:TAG stands for $IMAGE:$TAG
#: HOST/NAME stands for $IMAGE
#: sha256:… stands for $DIGEST
#: and_ends runs make demo
#: leaves out make test because it is run by itself, and takes twenty minutes
#: elsewhere runs kubectl lockstep status llama
#: with_registry runs make operator push
#: in_pod runs helm install lockstep

begin() { :; }

# and_ends also ends what the demo left running.
and_ends() {
	"$@"
	make demo-down
}

# elsewhere shows the set of the page's top on a cluster of its own. The reader has none yet.
elsewhere() {
	if [ -z "$KUBECONFIG" ]; then
		have_lockstep
		have_set inference llama
		"$@"
		have_cluster
	else
		"$@"
	fi
}
