#: with_load runs kubectl apply -f hpa.yaml

begin() {
	have_lockstep
	cp ../1.yaml hpa.yaml
	kubectl apply -f ../metrics.yaml
	kubectl wait --for=condition=Established customresourcedefinition/pods.metrics.k8s.io
}

# with_load runs a command once every leader uses twice the CPU that it requests. A kind of the metrics server's group
# stands in for that server.
with_load() {
	local pod
	for pod in llama-0 llama-1; do
		kubectl create -f - <<-END
			apiVersion: metrics.k8s.io/v1beta1
			kind: PodMetrics
			metadata: {name: $pod, labels: {leaderworkerset.sigs.k8s.io/name: llama, leaderworkerset.sigs.k8s.io/worker-index: "0"}}
			timestamp: $(date -u -d 'next hour' +%Y-%m-%dT%H:%M:%SZ)
			window: 1s
			containers: [{name: vllm, usage: {cpu: "64"}}]
		END
	done
	"$@"
}
