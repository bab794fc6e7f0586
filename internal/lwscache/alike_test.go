package lwscache

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

func TestMapsThatSayTheSameAreHeldOnce(t *testing.T) {
	a := alike{most: 2}
	first := map[string]string{"k": "v", "l": "w"}
	held := a.one(first)
	first["k"] = "changed later"
	if diff := cmp.Diff(map[string]string{"k": "v", "l": "w"}, held); diff != "" {
		t.Errorf("what is held follows what was given (-want +got)\n%s", diff)
	}
	again := a.one(map[string]string{"l": "w", "k": "v"})
	held["probe"] = "" // the same map, if this is seen through both
	if _, same := again["probe"]; !same {
		t.Error("two maps that say the same are held twice")
	}
	delete(held, "probe")
	if a.one(nil) != nil || a.one(map[string]string{}) != nil {
		t.Error("an empty map is held")
	}
	for _, other := range []map[string]string{{"k": "v,l"}, {"k": "", "vl": "w"}, {"kv": "", "l": "w"}, {"k": "1:v"}} {
		if got := a.one(other); !maps.Equal(got, other) {
			t.Errorf("got %v for %v", got, other)
		}
		if len(a.known) > a.most {
			t.Errorf("%d maps are remembered", len(a.known))
		}
	}
}

// Of a cached pod's labels and annotations the API's own stay, and the revision of its
// StatefulSet: whatever else users write on pods is theirs, and may be long.
func TestACachedPodKeepsTheWordsThatAreRead(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{
			"app": "llm", "apps.kubernetes.io/pod-index": "1", "statefulset.kubernetes.io/pod-name": "w-0-1",
			"controller-revision-hash": "w-0-abc", lwsv1.SetNameLabelKey: "w", lwsv1.GroupIndexLabelKey: "0", lwsv1.WorkerIndexLabelKey: "1",
			lwsv1.GroupUniqueHashLabelKey: "g", lwsv1.RevisionKey: "r", lwsv1.SubGroupIndexLabelKey: "0", lwsv1.SubGroupUniqueHashLabelKey: "s",
		},
		Annotations: map[string]string{
			"kubectl.kubernetes.io/last-applied-configuration": "{}", lwsv1.SizeAnnotationKey: "2", "scheduling.k8s.io/group-name": "w-0-r",
		},
	}}
	want := metav1.ObjectMeta{
		Labels: map[string]string{
			"controller-revision-hash": "w-0-abc", lwsv1.SetNameLabelKey: "w", lwsv1.GroupIndexLabelKey: "0", lwsv1.WorkerIndexLabelKey: "1",
			lwsv1.GroupUniqueHashLabelKey: "g", lwsv1.RevisionKey: "r", lwsv1.SubGroupIndexLabelKey: "0", lwsv1.SubGroupUniqueHashLabelKey: "s",
		},
		Annotations: map[string]string{lwsv1.SizeAnnotationKey: "2", "scheduling.k8s.io/group-name": "w-0-r"},
	}
	if _, err := trimPod(pod); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, pod.ObjectMeta); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
