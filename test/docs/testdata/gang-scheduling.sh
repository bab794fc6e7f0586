#: some runs kubectl get podgroups

# Volcano itself is not there. Its kind is, and the set of the page's YAML.
begin() {
	have_lockstep
	kubectl apply -f ../podgroups.yaml
	have_set minimal
	kubectl patch leaderworkerset minimal --type merge --patch-file ../1.yaml
}

# some waits for the first object, as the reader does.
some() {
	await has_any "$@"
	"$@"
}

has_any() { [ -n "$("$@" --output name)" ]; }
