#: NAME stands for llama
#: NODE-1 stands for node-001
#: NODE-2 stands for node-002
#: await runs kubectl get poddisruptionbudget

begin() {
	have_lockstep
	have_set inference llama
}
