#: NAME stands for llama
#: … stands for --image "$IMAGE@$DIGEST"

begin() {
	have_lockstep
	have_set inference llama
}
