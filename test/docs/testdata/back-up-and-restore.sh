#: NAMESPACE stands for team
#: NAME stands for cached
#: leaves out velero backup create because Velero is no program of this repository
#: without_the_set runs kubectl get leaderworkersets,statefulsets,pods,pvc
#: from_yaml runs velero restore create

begin() {
	have_lockstep
	have_set volumes cached team
}

# without_the_set deletes it before it looks: a page about a backup is read after a loss.
without_the_set() {
	kubectl delete leaderworkerset cached --namespace team --wait
	"$@"
}

# from_yaml creates what the backup would have held.
from_yaml() { kubectl create --namespace team -f examples/volumes.yaml; }
