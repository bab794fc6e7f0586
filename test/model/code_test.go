package model

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

// TestTheCodeJudgesAsTheModelDoes puts the code to every claim and pod that the
// model knows: what the code takes away, the model takes away.
func TestTheCodeJudgesAsTheModelDoes(t *testing.T) {
	released := 0
	beside, alone := BarrierBeside(RefusesUnprotected), BarrierAlone(RefusesUnprotected)
	for _, rules := range []Rules{beside, alone, Probing(beside), Probing(alone)} {
		for _, c := range everyClaim() {
			for _, phase := range []phase{unbound, bound, gone} {
				want := modelTakes(world{rules, OneLife}, c, phase)
				if c.record != 0 && phase < gone {
					want = none // the code goes by the record as well
				}
				if got := codeTakes(c, phase, rules, nil); got != want {
					t.Errorf("%+v, pod %d, built-in %t: the code takes %d, the model %d", c, phase, rules.BuiltIn, got, want)
				}
				if got := codeTakes(c, phase, rules, errors.New("lost")); got != none {
					t.Errorf("%+v, pod %d: the code takes %d after an error", c, phase, got)
				}
				if want != none {
					released++
				}
			}
		}
	}
	if released < 20 {
		t.Errorf("only %d were released: the test has gone blind", released)
	}
}

// TestTheCodeIsNoLaxerThanTheRecord: where the model of the use record keeps a
// claim, so does the code.
func TestTheCodeIsNoLaxerThanTheRecord(t *testing.T) {
	for _, c := range everyClaim() {
		for _, phase := range []phase{unbound, bound} {
			kept := modelTakes(world{Recorded(), OneLife}, c, phase) == none
			if got := codeTakes(c, phase, BarrierAlone(RefusesUnprotected), nil); kept && got != none {
				t.Errorf("%+v, pod %d: the code takes %d, the record keeps", c, phase, got)
			}
		}
	}
}

func everyClaim() []claim {
	var claims []claim
	for bits := range 16 {
		has := func(bit int) bool { return bits&(1<<bit) != 0 }
		claims = append(claims, claim{life: 1, exists: true, terminating: has(0), pods: has(1), barrier: has(2), record: incarnations(bits >> 3)})
	}
	return claims
}

// modelTakes is what ours decides to take, its caches showing the claim and no
// pod.
func modelTakes(w world, c claim, p phase) finalizer {
	s := state{claim: c, pod: pod{phase: p}}
	s.ours.claim, s.podsAt = c, 1 // what the caches have yet to hear of is the pod
	takes := none
	w.judge(s, ours, func(_ string, then state) {
		takes = max(takes, then.ours.out.removes)
		w.judge(then, ours, func(_ string, then state) { takes = max(takes, then.ours.out.removes) }) // where it was only asked
	})
	return takes
}

// codeTakes is what the code takes. Pods may be unreadable.
func codeTakes(c claim, p phase, rules Rules, pods error) finalizer {
	object := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "c", ResourceVersion: "1", Annotations: map[string]string{}},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
	}
	if c.terminating {
		object.DeletionTimestamp = &metav1.Time{}
	}
	if c.pods {
		object.Finalizers = append(object.Finalizers, pvc.PodsFinalizer)
	}
	if c.barrier {
		object.Finalizers = append(object.Finalizers, pvc.BarrierFinalizer)
	}
	if c.record != 0 {
		object.Annotations[pvc.UsersAnnotation] = "web=p"
	}
	batch := pvc.Settings{Alone: !rules.BuiltIn}.Take("ns", []*corev1.PersistentVolumeClaim{object})
	releases, _ := batch.Look(func(_ string, see func(*corev1.Pod)) error {
		if p < gone {
			see(codePod(p))
		}
		return pods
	}).Judge()
	if len(releases) == 0 {
		return none
	}
	if releases[0].Takes() == pvc.PodsFinalizer {
		return podsFinalizer
	}
	return barrierFinalizer
}

func codePod(p phase) *corev1.Pod {
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "p"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{
		Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}},
	}}}}
	if p >= bound {
		object.Spec.NodeName = "n1"
	}
	return object
}
