#: NAME stands for llama
#: HOST/NAME stands for $IMAGE
#: sha256:… stands for $DIGEST
#: FILE stands for configuration.yaml
#: in_pod runs helm upgrade
#: with_program runs lockstep install --dry-run
#: in_pod runs lockstep install

begin() {
	have_programs
	have_cluster
	helm install lockstep charts/lockstep --namespace lws-system --create-namespace \
		--set "image.repository=$IMAGE" --set "image.digest=$DIGEST" --wait
	start_operator
	have_set inference llama
	printf '%s\n' 'apiVersion: config.lws.x-k8s.io/v1alpha1' 'kind: Configuration' >configuration.yaml
}

# with_program changes the tool: a cluster has one of them, and the page has both. The pods stay the same.
with_program() {
	helm uninstall lockstep --namespace lws-system --wait
	end_operator
	in_pod lockstep install --image "$IMAGE:$TAG"
	"$@"
}
