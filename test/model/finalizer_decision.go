package model

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/pvc"
)

// sight is the pod as a read or a cache shows it.
type sight struct {
	there, bound bool
	number       int8
}

func sightOf(p pod) sight { return sight{there: p.phase < gone, bound: p.uses(), number: p.number} }

func (s sight) uses() bool { return s.there && s.bound }

// question is the input of a decision.
type question struct {
	onto  stored
	pod   sight
	alone bool
}

// answer is what package pvc decides.
type answer struct {
	// reads: the cache shows no user, so pods are read.
	reads bool
	// removes is the finalizer that a read without error allows to remove.
	removes finalizer
	// record is the use record after the decision, of a PVC that does not terminate.
	record incarnations
}

// asked returns the question without fields that no decision reads.
func (q question) asked() question {
	q.onto.version = 0
	return q
}

func (q question) decide() answer {
	object, settings, a := q.onto.object(), pvc.Settings{Alone: q.alone, Mode: pvc.Barrier}, answer{record: q.onto.record}
	index := pvc.NewIndex()
	if q.pod.there {
		index.See(q.pod.object())
	}
	a.reads = pvc.Decide(pvc.View{Claim: object, Pods: index, Mode: pvc.Barrier, Settings: settings}).Step == pvc.Look
	live := settings.Take("ns", []*corev1.PersistentVolumeClaim{object}).Look(func(_ string, see func(*corev1.Pod)) error {
		if q.pod.there {
			see(q.pod.object())
		}
		return nil
	})
	if releases, _ := live.Judge(); len(releases) > 0 {
		a.removes = map[string]finalizer{pvc.PodsFinalizer: podsFinalizer, pvc.BarrierFinalizer: barrierFinalizer}[releases[0].Takes()]
	}
	for _, w := range live.Forget() {
		a.record = 0
		record, _ := pvc.ParseRecord(w.Annotations[pvc.UsersAnnotation])
		for _, r := range record {
			a.record = a.record.with(int8(r.UID[1] - '0'))
		}
	}
	return a
}

func uidOf(number int8) types.UID { return types.UID(fmt.Sprintf("p%d", number)) }

func (c stored) object() *corev1.PersistentVolumeClaim {
	object := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "c", ResourceVersion: "1", Annotations: map[string]string{}}}
	if c.terminating {
		object.DeletionTimestamp = &metav1.Time{}
	}
	if c.pods {
		object.Finalizers = append(object.Finalizers, pvc.PodsFinalizer)
	}
	if c.barrier {
		object.Finalizers = append(object.Finalizers, pvc.BarrierFinalizer)
	}
	var record pvc.Record
	for number := range int8(8) {
		if c.record.has(number) {
			record = append(record, pvc.Recorded{Name: "web", UID: uidOf(number)})
		}
	}
	if record != nil {
		object.Annotations[pvc.UsersAnnotation] = record.String()
	}
	return object
}

func (s sight) object() *corev1.Pod {
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: uidOf(s.number)}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{
		Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}},
	}}}}
	if s.bound {
		object.Spec.NodeName = "n1"
	}
	return object
}
