package admission_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lws/admission"
)

const (
	workerPath = "spec.leaderWorkerTemplate.workerTemplate."
	leaderPath = "spec.leaderWorkerTemplate.leaderTemplate."
	systemKey  = "is set by the operator; remove it from the template"
)

func TestWarnings(t *testing.T) {
	label := func(key, value string) func(*corev1.PodTemplateSpec) {
		return func(p *corev1.PodTemplateSpec) { metav1.SetMetaDataLabel(&p.ObjectMeta, key, value) }
	}
	annotation := func(key, value string) func(*corev1.PodTemplateSpec) {
		return func(p *corev1.PodTemplateSpec) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value) }
	}
	network := func(p *corev1.PodTemplateSpec) { p.Spec.Hostname, p.Spec.Subdomain = "h", "s" }
	env := func(p *corev1.PodTemplateSpec) {
		p.Spec.InitContainers = []corev1.Container{{Env: []corev1.EnvVar{{Name: lwsv1.LwsGroupSize}, {Name: "OTHER"}}}}
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: lwsv1.LwsWorkerIndex}, {Name: lwsv1.LwsGroupSize}}
	}
	claim := claimOf("data", "fast", "1Gi", func(c *corev1.PersistentVolumeClaim) {
		c.Labels = map[string]string{"a": "b"}
		c.Spec.Selector = &metav1.LabelSelector{}
	})
	hostname := withWorkers(func(p *corev1.PodTemplateSpec) { p.Spec.Hostname = "h" })
	rack := withAnnotation(lwsv1.ExclusiveKeyAnnotationKey, "rack")
	const moved = "metadata.annotations[leaderworkerset.sigs.k8s.io/exclusive-topology]: changing it replaces every group, within maxUnavailable and from the partition on"
	tests := []struct {
		name     string
		old, set *lwsv1.LeaderWorkerSet
		want     []string
	}{
		{"nothing", nil, newSet(), nil},
		{"empty topology", nil, newSet(withAnnotation(lwsv1.ExclusiveKeyAnnotationKey, "")), []string{
			"metadata.annotations[leaderworkerset.sigs.k8s.io/exclusive-topology]: is empty and places nothing; name a node label, or remove it",
		}},
		{"one topology for both", nil, newSet(withSubgroups(2), withAnnotation(lwsv1.ExclusiveKeyAnnotationKey, "rack"), withAnnotation(lwsv1.SubGroupExclusiveKeyAnnotationKey, "rack")), []string{
			"metadata.annotations[leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology]: names the same node label as exclusive-topology and has no effect; name a narrower one",
		}},
		{"label that is overwritten", nil, newSet(withWorkers(label(lwsv1.GroupIndexLabelKey, "0"))), []string{
			workerPath + "metadata.labels[leaderworkerset.sigs.k8s.io/group-index]: " + systemKey,
		}},
		{"name of the set", nil, newSet(withWorkers(label(lwsv1.SetNameLabelKey, "w"))), nil},
		{"name of another set", nil, newSet(withLeaderTemplate(label(lwsv1.SetNameLabelKey, "x"))), []string{
			leaderPath + "metadata.labels[leaderworkerset.sigs.k8s.io/name]: " + systemKey,
		}},
		{"annotation that is overwritten", nil, newSet(withWorkers(annotation(lwsv1.SizeAnnotationKey, "9"))), []string{
			workerPath + "metadata.annotations[leaderworkerset.sigs.k8s.io/size]: " + systemKey,
		}},
		{"annotation of the set", nil, newSet(withWorkers(annotation(lwsv1.ExclusiveKeyAnnotationKey, "rack"))), []string{
			workerPath + "metadata.annotations[leaderworkerset.sigs.k8s.io/exclusive-topology]: belongs to the set; move it to metadata.annotations",
		}},
		{"template that is not used", nil, newSet(withSize(1), withLeaderTemplate(), withWorkers(annotation(lwsv1.SizeAnnotationKey, "9"))), nil},
		{"network of the pod", nil, newSet(withWorkers(network)), []string{
			workerPath + "spec.hostname: is overwritten with the name of the pod",
			workerPath + "spec.subdomain: is overwritten with the name of the Service; see spec.networkConfig.subdomainPolicy",
		}},
		{"environment", nil, newSet(withWorkers(env)), []string{
			workerPath + "spec: environment variable LWS_GROUP_SIZE is overwritten by the operator",
			workerPath + "spec: environment variable LWS_WORKER_INDEX is overwritten by the operator",
		}},
		{"pods of another scheduler", nil, newSet(withAnnotation(lwsv1.GangSchedulerAnnotationKey, "volcano")), []string{
			workerPath + `spec.schedulerName: is not "volcano", so these pods are placed one by one`,
		}},
		{"pods of Volcano", nil, newSet(withAnnotation(lwsv1.GangSchedulerAnnotationKey, "volcano"), withWorkers(func(p *corev1.PodTemplateSpec) { p.Spec.SchedulerName = "volcano" })), nil},
		{"claims", nil, newSet(withClaims(claim, claim)), []string{
			"spec.leaderWorkerTemplate.volumeClaimTemplates: the claims will not have labels, selector: only name, accessModes, storageClassName, volumeMode and resources are used",
		}},

		{"told before", newSet(hostname), newSet(hostname, withReplicas(3)), nil},
		{"new in an update", newSet(), newSet(hostname), []string{workerPath + "spec.hostname: is overwritten with the name of the pod"}},
		{"placement added", newSet(), newSet(rack), []string{moved}},
		{"placement removed", newSet(rack), newSet(), []string{moved}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := admission.Warnings(tt.set, tt.old)
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, warning := range got {
				if len(warning) > 256 {
					t.Errorf("the API server cuts %d characters: %s", len(warning), warning)
				}
			}
		})
	}
}

// The limit is 63 characters less "-" and ten of hash, less the longest index.
func TestWarnsOfLongNames(t *testing.T) {
	tests := []struct {
		name    string
		limit   int
		changes []change
	}{
		{"without workers", 52, []change{withSize(1)}},
		{"groups 0 and 1", 50, nil},
		{"ten groups", 50, []change{withReplicas(10)}},
		{"eleven groups", 49, []change{withReplicas(11)}},
		{"ten and one to spare", 49, []change{withReplicas(10), withBudget("0", "1%")}},
		{"surge beyond replicas", 50, []change{withReplicas(2), withBudget("0", "1000")}},
		{"none yet", 50, []change{withReplicas(0)}},
		{"a million", 45, []change{withReplicas(1000000)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fits := newSet(append(tt.changes, withName(strings.Repeat("a", tt.limit)))...)
			if got := admission.Warnings(fits, nil); got != nil {
				t.Errorf("%d characters: got %q, want no warning", tt.limit, got)
			}
			exceeds := newSet(append(tt.changes, withName(strings.Repeat("a", tt.limit+1)))...)
			if got := admission.Warnings(exceeds, nil); len(got) != 1 || !strings.HasPrefix(got[0], "metadata.name: has ") {
				t.Errorf("%d characters: got %q, want one warning", tt.limit+1, got)
			}
			checkFaults(t, admission.ValidateCreate(exceeds), nil)
		})
	}
}

func tied(pod *corev1.Pod) { gang.Tie(pod, gang.NameOf(pod)) }

func TestInGang(t *testing.T) {
	leader := func(edits ...func(*corev1.Pod)) *corev1.Pod {
		pod := mutate(t, newLeader("w-0"))
		for _, edit := range edits {
			edit(pod)
		}
		return pod
	}
	older := leader(tied)
	older.Labels[lwsv1.RevisionKey] = "older"
	says := func(name string) *lwsv1.LeaderWorkerSet {
		set := newSet()
		set.Annotations = map[string]string{lwsv1.GangSchedulerAnnotationKey: name}
		return set
	}
	tests := []struct {
		name      string
		pod       *corev1.Pod
		leader    *corev1.Pod
		set       *lwsv1.LeaderWorkerSet
		otherwise bool
		want      bool
	}{
		{"a leader goes where its set says", newLeader("w-0"), nil, says("volcano"), false, true},
		{"a leader of a set that wants none", newLeader("w-0"), nil, says("none"), true, false},
		{"a leader of a set that does not say", newLeader("w-0"), nil, newSet(), true, true},
		{"a leader whose set is not found", newLeader("w-0"), nil, nil, true, true},
		{"a worker follows its leader", newWorker("w-0-1"), leader(tied), says("none"), false, true},
		{"a worker follows its leader that is in no gang", newWorker("w-0-1"), leader(), says("volcano"), true, false},
		{"a worker whose template is tied", newWorker("w-0-1", tied), leader(), says("none"), false, true},
		{"a worker of another revision than the leader", newWorker("w-0-1"), older, says("none"), false, false},
		{"a worker without a leader goes where its set says", newWorker("w-0-1"), nil, says("volcano"), false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := admission.InGang(tt.pod, tt.leader, tt.set, tt.otherwise); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
