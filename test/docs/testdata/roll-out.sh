#: llama in namespace is output
begin() {
	have_lockstep
	have_set inference llama
	local image
	for image in v0.11.0 v0.12.0 v0.13.0; do
		sed "s/:v0.10.2/:$image/" examples/inference.yaml >llama.yaml
		kubectl apply -f llama.yaml
		kubectl lockstep rollout status llama --timeout=5m
	done
}
