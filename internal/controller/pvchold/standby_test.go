package pvchold

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/report"
)

// Each replica follows claims and namespaces, so that it can take over at once. What had
// been released and was deleted was told by every one of them.
func TestAReplicaThatStandsByTellsNothing(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	l := newLagging(t)
	l.narrate = report.NewHolds(report.New(recorder))
	elected := make(chan struct{})
	followers := l.followers(newKeys(nil, nil), newKeys(nil, nil), elected)
	namespace := pvccache.NewNamespace("ns")
	now := metav1.Now()
	namespace.UID, namespace.DeletionTimestamp = "n", &now
	namespace.Annotations = map[string]string{pvc.HeldClaimsAnnotation: "2", pvc.ReleaseAnnotation: "n"}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "c", UID: "c", Annotations: map[string]string{pvc.HoldersAnnotation: "StatefulSet/db", pvc.ReleaseAnnotation: "c"},
	}}
	tell := func() int {
		followers.Ends(namespace)
		followers.Gone(claim)
		return len(recorder.Events)
	}
	if told := tell(); told != 0 {
		t.Errorf("told %d times while another leads", told)
	}
	close(elected)
	if told := tell(); told < 2 {
		t.Errorf("told %d times by the one that leads", told)
	}
}
