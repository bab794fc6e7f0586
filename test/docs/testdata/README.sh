#: HOST/NAME:TAG stands for $IMAGE:$TAG
#: HOST/NAME stands for $IMAGE
#: sha256:… stands for $DIGEST
#: leaves out make demo because it is the whole page's cluster, and needs the terminal for itself
#: leaves out make test because it runs in CI, and takes twenty minutes
#: elsewhere runs kubectl lockstep status llama
#: with_registry runs make operator push
#: in_pod runs helm install lockstep

begin() { :; }

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
