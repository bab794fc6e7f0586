#: NAMESPACE stands for team
#: NAME stands for cached
#: completed runs velero backup create
#: without_the_set runs kubectl get leaderworkersets,statefulsets,pods,pvc
#: completed runs velero restore create
#: restored runs kubectl wait

begin() {
	have_lockstep
	have_velero
	have_set volumes cached team
}

# have_velero gives the reader a cluster with Velero of the version that the page names. Its server runs on this
# machine, in place of its pod, and the backups are in memory. Paths of its plugins' sockets have to be short.
have_velero() {
	local version
	version=$(velero version --client-only | grep -o 'v[0-9].*')
	grep "Velero $version " "docs/how-to/$PAGE.md"
	printf '[default]\naws_access_key_id = any\naws_secret_access_key = any\n' >s3.credentials
	velero install --provider aws --plugins velero/velero-plugin-for-aws --secret-file s3.credentials --bucket backups \
		--backup-location-config "region=local,s3ForcePathStyle=true,s3Url=http://127.0.0.1:$REGISTRY" \
		--use-volume-snapshots=false >velero.out
	gofakes3 -backend memory -initialbucket backups -host "127.0.0.1:$REGISTRY" >s3.log 2>&1 &
	mkdir plugins
	ln -s "$(command -v velero-plugin-for-aws)" plugins/
	AWS_SHARED_CREDENTIALS_FILE=s3.credentials TMPDIR=${EGRESS%/*} velero server --plugin-dir plugins \
		--metrics-address 127.0.0.1:0 --profiler-address= >velero.log 2>&1 &
	kubectl wait --for=jsonpath='{.status.phase}'=Available --timeout=2m backupstoragelocation/default --namespace velero ||
		{ tail -n 20 velero.log; return 1; }
}

# completed runs a command of Velero, and reads whether it succeeded: the exit code does not say so.
completed() {
	"$@" | tee velero.out
	grep --quiet 'with status: Completed' velero.out || { grep 'level=error' velero.log; return 1; }
}

# of_team prints a field of objects in the namespace.
of_team() { kubectl get "$1" --namespace team -o "jsonpath={$2}"; }

# without_the_set deletes it before it looks: a page about a backup is read after a loss.
without_the_set() {
	uid=$(of_team leaderworkerset/cached .metadata.uid)
	claims=$(of_team pvc '.items[*].metadata.name')
	kubectl delete leaderworkerset cached --namespace team --wait
	await gone
	"$@"
}

gone() { [ -z "$(kubectl get statefulsets,pods,pvc --namespace team -o name)" ]; }

# restored waits for the set. Then it takes the page's other way, the whole namespace, where the pods stay too.
restored() {
	"$@"
	is_whole
	completed velero backup create whole --wait --include-namespaces team
	without_the_set true
	completed velero restore create --wait --from-backup whole
	"$@"
	is_whole
	[ "$(by_velero pods)" = 4 ]
	leaves_a_set
}

# is_whole looks at a set that was restored: it is another one, all of it is ready, and it uses the PVCs of the backup.
is_whole() {
	ready cached --namespace team
	[ "$(of_team leaderworkerset/cached .metadata.uid)" != "$uid" ]
	[ "$(of_team pvc '.items[*].metadata.name')" = "$claims" ]
	[ "$(by_velero pvc)" = 4 ]
	[ "$(of_team pods '.items[*].metadata.name')" = "cached-0 cached-0-1 cached-1 cached-1-1" ]
	kubectl wait --for=condition=Ready --timeout=5m pods --all --namespace team
	[ "$(of_team leaderworkerset/cached '.status.conditions[?(@.type=="NameConflict")].status')" != True ]
}

# by_velero counts the objects that a restore created.
by_velero() { kubectl get "$1" --namespace team --selector velero.io/restore-name -o name | wc -l; }

# leaves_a_set restores once more, over a set that exists and has changed since.
leaves_a_set() {
	kubectl scale leaderworkerset cached --namespace team --replicas 3
	completed velero restore create over --wait --from-backup whole
	[ "$(of_team leaderworkerset/cached .spec.replicas)" = 3 ]
}
