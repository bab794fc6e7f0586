#: without_image runs kubectl apply -f llama.yaml

begin() {
	have_lockstep
	have_set inference llama
	sed 's/:v0.10.2/:v0.10.22/; s/^ *role: leader$/&\n        annotations: {local.lockstep.dev\/ready-after: 1h}/' examples/inference.yaml >llama.yaml
}

# without_image runs a command, and says of a leader what a kubelet would that cannot pull its image. Later the file has
# the right one.
without_image() {
	"$@"
	await kubectl patch pod llama-2 --subresource=status --type=json --patch '[
		{"op": "test", "path": "/spec/containers/0/image", "value": "vllm/vllm-openai:v0.10.22"},
		{"op": "replace", "path": "/status/containerStatuses/0/state", "value": {"waiting": {"reason": "ImagePullBackOff"}}}]'
	cp examples/inference.yaml llama.yaml
}
