#: NAME stands for llama
#: NAMESPACE stands for default
#: … stands for --image "$IMAGE@$DIGEST"

begin() {
	have_lockstep
	have_set inference llama
}
