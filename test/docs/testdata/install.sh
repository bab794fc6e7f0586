#: HOST/NAME:TAG stands for $IMAGE:$TAG
#: HOST/NAME stands for $IMAGE
#: sha256:… stands for $DIGEST
#: ADDRESS stands for 127.0.0.1
#: F stands for ~/.kube/config
#: with_registry runs make push
#: in_pod runs helm install lockstep
#: anew runs kubectl apply --server-side
#: in_pod runs kubectl --namespace lws-system create secret
#: anew_in_pod runs bin/lockstep install --kubeconfig ~/.kube/config
#: anew runs bin/lockstep install --kubeconfig F
#: beside runs bin/lockstep run
#: leaves out kubectl --namespace lws-system create secret generic lws-webhook-authority --from-file=ca.crt --from-file=ca.key --dry-run=client because this cluster has no release; the drill of the chart changes to an authority of the user
#: leaves out helm upgrade lockstep because this cluster has no release
#: without_sets runs lockstep uninstall --dry-run

begin() {
	have_programs
	have_cluster
}

# anew runs a command on a new cluster: the page has several ways to install.
anew() {
	have_cluster
	"$@"
}

anew_in_pod() {
	anew "$@"
	start_operator
}

# beside runs the operator as in a terminal of its own.
beside() {
	"$@" >operator.log 2>&1 &
	operator=$!
	await answers 8081 /readyz
	have_set minimal
}

# without_sets deletes the sets first: the page says that the command refuses otherwise.
without_sets() {
	kubectl delete leaderworkersets --all --wait
	"$@"
}
