#: KEY stands for $(leader '{.metadata.labels.leaderworkerset\.sigs\.k8s\.io/group-key}')
#: LEADER stands for $(leader '{.metadata.name}')

begin() { have_lockstep; }

# leader prints a field of a leader.
leader() {
	kubectl get pods -l leaderworkerset.sigs.k8s.io/name=batch,leaderworkerset.sigs.k8s.io/worker-index=0 -o jsonpath="{range .items[:1]}$1{end}"
}
