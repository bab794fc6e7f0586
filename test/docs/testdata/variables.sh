begin() {
	have_lockstep
	cp ../1.yaml sglang.yaml
	cp ../2.yaml tpu.yaml
}
