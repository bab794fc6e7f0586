#: NAME stands for llama
#: NAMESPACE stands for default
#: … stands for --image "$IMAGE@$DIGEST"
#: leaves out kubectl lockstep recover because no group of the example is stopped

begin() {
	have_lockstep
	have_set inference llama
}
