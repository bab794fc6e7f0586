#: NAMESPACE stands for lws-system
#: NAME stands for llama
#: RELEASE stands for lws
#: DEPLOYMENT stands for lws-controller-manager
#: REGISTRY/lockstep:TAG stands for $IMAGE:$TAG
#: HOST/NAME stands for $IMAGE
#: sha256:… stands for $DIGEST
#: as_is runs lockstep install --dry-run
#: in_pod runs lockstep install
#: from_other_in_pod runs helm upgrade
#: from_other runs kubectl patch validatingwebhookconfigurations
#: in_pod runs helm install lockstep
#: from_other_stopped runs kubectl --namespace NAMESPACE scale deployment
#: from_chart runs helm uninstall
#: edited runs kubectl get leaderworkerset NAME

# The other is the objects of its chart, and this operator in place of its own.
begin() {
	have_programs
	have_cluster
	kubectl apply --server-side -f config/crd
	have_other
	have_set inference llama
}

have_other() {
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=other \
		-addext subjectAltName=IP:127.0.0.1 -keyout other.key -out other.crt
	helm install lws release/helm/testdata/reference --namespace lws-system --create-namespace --wait \
		--set "url=https://127.0.0.1:$WEBHOOKS" --set fullname=lws --set-file cert=other.crt --set-file key=other.key
	run_operator "$KUBECONFIG" --leader-elect=false
}

# have_other_again goes back: the page has several ways to Lockstep, and the pods stay the same.
have_other_again() {
	end_operator
	local release
	for release in $(helm list --short --namespace lws-system); do
		helm uninstall "$release" --namespace lws-system --wait
	done
	lockstep uninstall --keep-sets
	have_other
}

from_other() {
	have_other_again
	"$@"
}

from_other_in_pod() {
	have_other_again
	in_pod "$@"
}

# from_other_stopped installs after it stopped the other, as the page goes on.
from_other_stopped() {
	have_other_again
	"$@"
	end_operator
	in_pod lockstep install --image "$IMAGE:$TAG"
}

# from_chart goes back from Lockstep by Helm: here it came with the program.
from_chart() {
	from_other_in_pod helm upgrade lws charts/lockstep --namespace lws-system --reset-values --take-ownership \
		--set "image.repository=$IMAGE" --set "image.digest=$DIGEST" --wait
	"$@"
	end_operator
}

# edited edits what it reads as the page says: without status, uid and resourceVersion. Lockstep is there again.
edited() {
	in_pod lockstep install --image "$IMAGE:$TAG" >&2
	"$@" | sed '/^status:/,$d; /^  uid:/d; /^  resourceVersion:/d'
}
