#: NAME stands for llama
#: NAMESPACE stands for default
#: … stands for --image "$IMAGE@$DIGEST"
#: await runs kubectl annotate pod NAME-1 leaderworkerset.sigs.k8s.io/recover=true

begin() {
	have_lockstep
	have_set inference llama
}
