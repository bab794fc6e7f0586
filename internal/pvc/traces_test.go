package pvc_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"lockstep.dev/lockstep/internal/pvc"
)

// traced answers that pods completed some time ago, and what is left of volumes.
func traced(ago time.Duration, left pvc.Traces, err error) pvc.Tracing {
	return pvc.Tracing{
		Completed: func(types.UID) time.Duration { return ago },
		Read:      func(pvc.Question) (pvc.Traces, error) { return left, err },
	}
}

var (
	nowhere  = pvc.Traces{}
	attached = pvc.Traces{Attached: []string{"n1"}}
	inUse    = pvc.Traces{InUse: []string{"n1"}}
	silent   = pvc.Traces{Silent: []string{"n1"}}
)

func TestChoicesAreJudgedByWhatIsLeftOnNodes(t *testing.T) {
	const long = time.Hour
	free, holds := annotated(pvc.CompletedKey, "free"), annotated(pvc.AttachedKey, "hold")
	bare := finalizers(b)
	recorded := annotated(pvc.UsersAnnotation, "job=uid-job")
	other := annotated(pvc.UsersAnnotation, "job=uid-job,web=uid-web")
	done, runs := pod("job", []string{"c"}, completed), pod("web", []string{"c"})
	waits := pod("web", nil, unbound)
	lost := errors.New("lost")
	for _, tt := range []struct {
		name    string
		edits   []func(*corev1.PersistentVolumeClaim)
		alone   bool
		pods    []*corev1.Pod
		tracing pvc.Tracing
		// takes is the finalizer that goes; or else the claim waits for what is said.
		takes, says string
		again       time.Duration
	}{
		{"a completed pod holds", nil, true, []*corev1.Pod{done}, traced(long, nowhere, nil), "", "", 0},
		{"it lets go of P", []func(*corev1.PersistentVolumeClaim){free}, true, []*corev1.Pod{done}, traced(long, nowhere, nil), p, "", 0},
		{"it lets go of B", []func(*corev1.PersistentVolumeClaim){free, bare}, false, []*corev1.Pod{done}, traced(long, nowhere, nil), b, "", 0},
		{"it lets go though the claim names it", []func(*corev1.PersistentVolumeClaim){free, bare, recorded}, false, []*corev1.Pod{done}, traced(long, nowhere, nil), b, "", 0},
		{"the claim names another", []func(*corev1.PersistentVolumeClaim){free, bare, other}, false, []*corev1.Pod{done, waits}, traced(long, nowhere, nil), "", "", 0},
		{"another runs", []func(*corev1.PersistentVolumeClaim){free}, true, []*corev1.Pod{done, runs}, traced(long, nowhere, nil), "", "", 0},
		{"not for long", []func(*corev1.PersistentVolumeClaim){free}, true, []*corev1.Pod{done}, traced(20*time.Second, nowhere, nil), "", "stays until pod job on node n1 lets go, 30s after it completed", 10 * time.Second},
		{"its volume is attached", []func(*corev1.PersistentVolumeClaim){free}, true, []*corev1.Pod{done}, traced(long, attached, nil), "", "pod job on node n1 lets go: completed, but volume pv-c is still attached to node n1", pvc.LookForTraces},
		{"its volume is in use", []func(*corev1.PersistentVolumeClaim){free}, true, []*corev1.Pod{done}, traced(long, inUse, nil), "", "volume pv-c may still be in use on node n1", pvc.LookForTraces},
		{"its node is silent", []func(*corev1.PersistentVolumeClaim){free}, true, []*corev1.Pod{done}, traced(long, silent, nil), "", "nothing is known of what is mounted on node n1", pvc.LookForTraces},
		{"nodes cannot be read", []func(*corev1.PersistentVolumeClaim){free}, true, []*corev1.Pod{done}, traced(long, nowhere, lost), "", "lost", 0},
		{"nobody answers", []func(*corev1.PersistentVolumeClaim){free}, true, []*corev1.Pod{done}, pvc.Tracing{}, "", "", 0},

		{"an attached volume without pods goes", []func(*corev1.PersistentVolumeClaim){bare}, true, nil, traced(long, attached, nil), b, "", 0},
		{"it holds", []func(*corev1.PersistentVolumeClaim){bare, holds}, true, nil, traced(long, attached, nil), "", "no pod uses the claim any more, and volume pv-c is still attached to node n1", pvc.LookForTraces},
		{"it holds by what a node says", []func(*corev1.PersistentVolumeClaim){bare, holds}, false, nil, traced(long, inUse, nil), "", "may still be in use on node n1", pvc.LookForTraces},
		{"it does not hold P", []func(*corev1.PersistentVolumeClaim){holds}, true, nil, traced(long, attached, nil), p, "", 0},
		{"it is detached", []func(*corev1.PersistentVolumeClaim){bare, holds}, true, nil, traced(long, nowhere, nil), b, "", 0},
		{"attachments cannot be read", []func(*corev1.PersistentVolumeClaim){bare, holds}, true, nil, traced(long, nowhere, lost), "", "lost", 0},
		{"nobody answers for it", []func(*corev1.PersistentVolumeClaim){bare, holds}, true, nil, pvc.Tracing{}, "", "were not read", 0},
		{"it never had a volume", []func(*corev1.PersistentVolumeClaim){bare, holds, unprovided}, true, nil, pvc.Tracing{}, b, "", 0},
		{"both are chosen, and its other node has it", []func(*corev1.PersistentVolumeClaim){bare, holds, free}, true, []*corev1.Pod{done}, elsewhere(inUse), "", "may still be in use on node n1", pvc.LookForTraces},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := claim("c", append(tt.edits, dying)...)
			batch := pvc.Settings{Alone: tt.alone}.Take(ns, []*corev1.PersistentVolumeClaim{c})
			releases, kept := batch.Look(reading(nil, tt.pods...)).Tracing(tt.tracing).Judge()
			if tt.takes != "" {
				if len(releases) != 1 || releases[0].Takes() != tt.takes {
					t.Fatalf("released %v, kept %+v", releases, kept)
				}
				return
			}
			if len(kept) != 1 {
				t.Fatalf("released %v", releases)
			}
			says := kept[0].Awaits.Sentence
			if kept[0].Err != nil {
				says = kept[0].Err.Error()
			}
			if !strings.Contains(says, tt.says) || (says == "") != (tt.says == "") || kept[0].Again != tt.again {
				t.Errorf("says %q, again in %s", says, kept[0].Again)
			}
		})
	}
}

func unprovided(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "" }

// elsewhere answers for nodes that nobody named.
func elsewhere(left pvc.Traces) pvc.Tracing {
	t := traced(time.Hour, left, nil)
	t.Read = func(q pvc.Question) (pvc.Traces, error) {
		if len(q.Nodes) > 0 {
			return nowhere, nil
		}
		return left, nil
	}
	return t
}

func TestOfANamespaceThatChose(t *testing.T) {
	batch := pvc.Settings{Alone: true}.Take(ns, []*corev1.PersistentVolumeClaim{claim("c", dying)}).Choosing(map[string]string{pvc.CompletedKey: "free"})
	releases, _ := batch.Look(reading(nil, pod("job", []string{"c"}, completed))).Tracing(traced(time.Hour, nowhere, nil)).Judge()
	if len(releases) != 1 {
		t.Error("not released")
	}
}

func TestMayUse(t *testing.T) {
	node := &corev1.Node{Status: corev1.NodeStatus{VolumesInUse: []corev1.UniqueVolumeName{"kubernetes.io/csi/disk.example.com^vol-1"}}}
	csi := func(driver, handle string) corev1.PersistentVolumeSource {
		return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}}
	}
	for _, tt := range []struct {
		name   string
		source corev1.PersistentVolumeSource
		node   *corev1.Node
		want   bool
	}{
		{"it", csi("disk.example.com", "vol-1"), node, true},
		{"another", csi("disk.example.com", "vol-2"), node, false},
		{"another driver's", csi("file.example.com", "vol-1"), node, false},
		{"never attached", corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{}}, node, false},
		{"of a kind whose names are not known", corev1.PersistentVolumeSource{FC: &corev1.FCVolumeSource{}}, node, true},
		{"of such a kind, on an idle node", corev1.PersistentVolumeSource{FC: &corev1.FCVolumeSource{}}, &corev1.Node{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := pvc.MayUse(tt.node, &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: tt.source}}); got != tt.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestLawsOfChoices(t *testing.T) {
	t.Run("choicesFreeOnlyWhatHasLeft", func(t *testing.T) {
		law(t, choicesFreeOnlyWhatHasLeft, "released under a completed pod", "running")
	})
	t.Run("aVolumeHoldsWhereThatIsChosen", func(t *testing.T) { law(t, aVolumeHoldsWhereThatIsChosen, "kept by its volume", "released") })
	t.Run("whoChoseNothingIsNotTraced", func(t *testing.T) { law(t, whoChoseNothingIsNotTraced, "released", "kept") })
}

// drawChosen is a scene in which pods complete and claims choose; in most, all
// have completed and all are freed by that.
func drawChosen(t *rapid.T) scene {
	s, over := drawScene(t), rapid.IntRange(0, 2).Draw(t, "over") > 0
	if over {
		s.pods = append(s.pods, pod("job", names))
	}
	for _, o := range s.pods {
		if over {
			completed(o)
			continue
		}
		for range rapid.IntRange(0, 2).Draw(t, "containers") {
			containers(rapid.SampledFrom([]corev1.ContainerState{running, terminated, terminated, waiting}).Draw(t, "state"))(o)
		}
	}
	for _, c := range s.claims {
		for _, key := range []string{pvc.CompletedKey, pvc.AttachedKey} {
			if word := rapid.SampledFrom([]string{"", "hold", "free", "?"}).Draw(t, "choice"); word != "" {
				c.Annotations[key] = word
			}
		}
		if over {
			c.Annotations[pvc.CompletedKey] = "free"
		}
	}
	return s
}

// Whoever chose what: no claim goes under a pod that may run, nor under one that has
// completed while its volume is on a node.
func choicesFreeOnlyWhatHasLeft(t *rapid.T, m met) {
	s := drawChosen(t)
	left := rapid.SampledFrom([]pvc.Traces{nowhere, nowhere, nowhere, nowhere, nowhere, attached, inUse, silent}).Draw(t, "left")
	ago := rapid.SampledFrom([]time.Duration{29 * time.Second, pvc.CompletedGrace, time.Minute, time.Hour}).Draw(t, "ago")
	releases, _ := s.settings.Take(ns, s.claims).Look(reading(nil, s.pods...)).Tracing(traced(ago, left, nil)).Judge()
	for _, r := range releases {
		c := s.claimed(r.Target().Name)
		choice, whole := pvc.ChoiceOf(c, nil), len(left.Attached)+len(left.InUse)+len(left.Silent) == 0
		for _, use := range index(s.pods...).Holding(c) {
			i := slices.IndexFunc(s.pods, func(o *corev1.Pod) bool { return o.UID == use.Pod.UID })
			m.when("released under a completed pod", true)
			if !pvc.Completed(s.pods[i]) || !choice.CompletedFree || !whole || ago < pvc.CompletedGrace {
				t.Fatalf("%s is released under %s, which completed %s ago, volumes %+v, choice %+v", c.Name, use.Pod, ago, left, choice)
			}
		}
	}
	m.when("running", slices.ContainsFunc(s.pods, func(o *corev1.Pod) bool { return o.Spec.NodeName != "" && !pvc.Completed(o) }))
}

func aVolumeHoldsWhereThatIsChosen(t *rapid.T, m met) {
	s := drawChosen(t)
	for _, c := range s.claims {
		c.Annotations[pvc.AttachedKey] = "hold"
	}
	left := rapid.SampledFrom([]pvc.Traces{nowhere, attached, inUse}).Draw(t, "left")
	releases, kept := s.settings.Take(ns, s.claims).Look(reading(nil, s.pods...)).Tracing(traced(time.Hour, left, nil)).Judge()
	m.when("kept by its volume", slices.ContainsFunc(kept, func(k pvc.Kept) bool { return k.Awaits.Code == "VolumeAttached" }))
	for _, r := range releases {
		m.when("released", r.Takes() == b)
		if r.Takes() == b && len(left.Attached)+len(left.InUse) > 0 {
			t.Fatalf("%s is released, and its volume is there: %+v", r.Target(), left)
		}
	}
}

func whoChoseNothingIsNotTraced(t *rapid.T, m met) {
	s := drawChosen(t)
	for _, c := range s.claims {
		delete(c.Annotations, pvc.CompletedKey)
		delete(c.Annotations, pvc.AttachedKey)
	}
	asked := pvc.Tracing{
		Completed: func(types.UID) time.Duration { t.Fatal("asked for a pod"); return 0 },
		Read:      func(pvc.Question) (pvc.Traces, error) { t.Fatal("asked for a volume"); return nowhere, nil },
	}
	view := s.settings.Take(ns, s.claims).Look(reading(nil, s.pods...))
	plain, held := view.Judge()
	releases, kept := view.Tracing(asked).Judge()
	m.when("released", len(releases) > 0)
	m.when("kept", len(kept) > 0)
	if len(plain) != len(releases) || len(held) != len(kept) {
		t.Fatalf("released %d and %d, kept %d and %d", len(plain), len(releases), len(held), len(kept))
	}
}
