#: with_load runs kubectl apply -f hpa.yaml

begin() {
	have_lockstep
	cp ../1.yaml hpa.yaml
	kubectl apply -f ../metrics.yaml
	kubectl wait --for=condition=Established customresourcedefinition/pods.metrics.k8s.io
}

# with_load runs a command once every prefill leader uses twice the CPU that it requests, as in autoscale.sh.
with_load() {
	local pod
	kubectl lockstep rollout status dset/chat --timeout=10m
	for pod in $(kubectl get pods -l disaggregatedset.x-k8s.io/role=prefill -o jsonpath='{.items[*].metadata.name}'); do
		kubectl create -f - <<-END
			apiVersion: metrics.k8s.io/v1beta1
			kind: PodMetrics
			metadata:
			  name: $pod
			  labels: {disaggregatedset.x-k8s.io/name: chat, disaggregatedset.x-k8s.io/role: prefill, leaderworkerset.sigs.k8s.io/worker-index: "0"}
			timestamp: $(date -u -d 'next hour' +%Y-%m-%dT%H:%M:%SZ)
			window: 1s
			containers: [{name: vllm, usage: {cpu: "16"}}]
		END
	done
	"$@"
}
