package admission_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/admission"
	"lockstep.dev/lockstep/test/expect"
)

// touches are changes that leave the template of pods as it is.
var touches = map[string]change{
	"finalizers": func(s *lwsv1.LeaderWorkerSet) { s.Finalizers = []string{"foregroundDeletion"} },
	"labels":     func(s *lwsv1.LeaderWorkerSet) { s.Labels = map[string]string{"a": "b"} },
	"paused":     withAnnotation(lwsv1.PausedAnnotationKey, lwsv1.PausedValue),
	"labels of pods": func(s *lwsv1.LeaderWorkerSet) {
		s.Spec.LeaderWorkerTemplate.WorkerTemplate.Labels = map[string]string{"a": "b"}
	},
}

func hashed(s *lwsv1.LeaderWorkerSet) { s.Spec.GroupIdentity = lwsv1.HashGroupIdentity }

// checkRefused checks that one fault names a field.
func checkRefused(t *testing.T, what string, faults error, path string) {
	t.Helper()
	expect.That(t, faults != nil && strings.HasPrefix(faults.Error(), path), "%s: got %v, want %s", what, faults, path)
}

func checkWarned(t *testing.T, what string, set, old *lwsv1.LeaderWorkerSet, path string) {
	t.Helper()
	warnings := admission.Warnings(set, old)
	expect.That(t, len(warnings) == 1 && strings.HasPrefix(warnings[0], path) && len(warnings[0]) <= 256,
		"%s: got %q, want one short warning of %s", what, warnings, path)
}

func bare(p *corev1.PodTemplateSpec) { p.Spec = corev1.PodSpec{} }

func emptied(p *corev1.PodTemplateSpec) { p.Spec.Containers = []corev1.Container{} }

func onlyInit(p *corev1.PodTemplateSpec) {
	p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, nil
}

const (
	workerContainers = "spec.leaderWorkerTemplate.workerTemplate.spec.containers: Required value"
	leaderContainers = "spec.leaderWorkerTemplate.leaderTemplate.spec.containers: Required value"
)

func TestTemplatesWithoutContainersAreRefused(t *testing.T) {
	for what, without := range map[string]func(*corev1.PodTemplateSpec){"no spec": bare, "no containers": emptied, "only init containers": onlyInit} {
		for name, tt := range map[string]struct {
			changes []change
			paths   []string
		}{
			"worker template":              {[]change{withWorkers(without)}, []string{workerContainers}},
			"worker template of keys":      {[]change{hashed, withWorkers(without)}, []string{workerContainers}},
			"worker beside leader":         {[]change{withWorkers(without), withLeaderTemplate()}, []string{workerContainers}},
			"leader template":              {[]change{withLeaderTemplate(without)}, []string{leaderContainers}},
			"both":                         {[]change{withWorkers(without), withLeaderTemplate(without)}, []string{leaderContainers, workerContainers}},
			"template of lone leaders":     {[]change{withSize(1), withWorkers(without)}, []string{workerContainers}},
			"worker template without use":  {[]change{withSize(1), withLeaderTemplate(), withWorkers(without)}, nil},
			"leader template without peer": {[]change{withSize(1), withLeaderTemplate(without)}, []string{leaderContainers}},
		} {
			faults := admission.Scheduling{}.ValidateCreate(newSet(tt.changes...))
			if len(faults) != len(tt.paths) {
				t.Errorf("%s, %s: %v", name, what, faults)
				continue
			}
			for i, path := range tt.paths {
				checkRefused(t, name+", "+what, faults[i], path)
			}
		}
	}
}

// What comes to use is judged when it does.
func TestUpdateThatNeedsATemplateWithoutContainersIsRefused(t *testing.T) {
	lone := []change{withSize(1), withLeaderTemplate(), withWorkers(bare)}
	old := newSet(lone...)
	checkRefused(t, "workers", admission.Scheduling{}.ValidateUpdate(newSet(append(lone, withSize(2))...), old).ToAggregate(), workerContainers)
	noLeaders := func(s *lwsv1.LeaderWorkerSet) { s.Spec.LeaderWorkerTemplate.LeaderTemplate = nil }
	checkRefused(t, "no leader template", admission.Scheduling{}.ValidateUpdate(newSet(append(lone, noLeaders)...), old).ToAggregate(), workerContainers)
	checkRefused(t, "emptied", admission.Scheduling{}.ValidateUpdate(newSet(withWorkers(bare)), newSet()).ToAggregate(), workerContainers)
}

// A set that was stored without containers takes each other change, and is mended.
func TestStoredSetWithoutContainersIsStillWritten(t *testing.T) {
	old := newSet(withWorkers(bare))
	for what, touch := range touches {
		set := newSet(withWorkers(bare), touch)
		checkFaults(t, admission.Scheduling{}.ValidateUpdate(set, old), nil)
		checkWarned(t, what, set, old, workerContainers)
	}
	checkFaults(t, admission.Scheduling{}.ValidateUpdate(newSet(withWorkers(bare), withReplicas(7)), old), nil)
	checkFaults(t, admission.Scheduling{}.ValidateUpdate(newSet(), old), nil)
	expect.Emptyf(t, admission.Warnings(newSet(), old), "a mended set is warned of")
	checkRefused(t, "the other template too", admission.Scheduling{}.ValidateUpdate(newSet(withWorkers(bare), withLeaderTemplate(bare)), old).ToAggregate(), leaderContainers)
}

// A set that gets workers needs room for their names.
func TestWorkersThatMakeANameTooLongAreRefused(t *testing.T) {
	long := withName(strings.Repeat("a", 52))
	checkRefused(t, "workers", admission.Scheduling{}.ValidateUpdate(newSet(withSize(2), long), newSet(withSize(1), long)).ToAggregate(), "metadata.name: ")
}

// The number in a fault may follow from another field: the fault is the same with another number.
func TestWriteMakesNoFaultThatTheStoredSetHas(t *testing.T) {
	a, b := field.NewPath("a"), field.NewPath("b")
	tooLong := func(at *field.Path, why string) *field.Error { return field.Invalid(at, "x", why).WithOrigin("length") }
	for name, tt := range map[string]struct {
		fault, stored *field.Error
		isMade        bool
	}{
		"the same":              {field.Required(a, "why"), field.Required(a, "why"), false},
		"another number":        {tooLong(a, "at most 49"), tooLong(a, "at most 50"), false},
		"another field":         {tooLong(b, "at most 50"), tooLong(a, "at most 50"), true},
		"another value":         {field.Invalid(a, 2, "why"), field.Invalid(a, 1, "why"), true},
		"another rule":          {field.Invalid(a, 1, "partition"), field.Invalid(a, 1, "claims"), true},
		"a rule without origin": {tooLong(a, "at most 50"), field.Invalid(a, "x", "other"), true},
	} {
		made := admission.Made(field.ErrorList{tt.fault}, field.ErrorList{tt.stored})
		expect.Equalf(t, tt.isMade, len(made) == 1, "%s: the write makes %v", name, made)
	}
}

// A cause lies where the user wrote the field, or nowhere.
func TestCausesLieAtThePathsOfTheSet(t *testing.T) {
	const leader, worker = "spec.leaderWorkerTemplate.leaderTemplate", "spec.leaderWorkerTemplate.workerTemplate"
	claims := func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
	}
	for _, tt := range []struct {
		set              *lwsv1.LeaderWorkerSet
		cause            string
		leaders, workers string
	}{
		{newSet(), "spec.template.spec.containers[1].ports[0].containerPort", worker + ".spec.containers[1].ports[0].containerPort", worker + ".spec.containers[1].ports[0].containerPort"},
		{newSet(withLeaderTemplate()), "spec.template.spec.initContainers[0].name", leader + ".spec.initContainers[0].name", worker + ".spec.initContainers[0].name"},
		{newSet(withLeaderTemplate()), "spec.template.labels", leader + ".metadata.labels", worker + ".metadata.labels"},
		{newSet(withLeaderTemplate()), "spec.template.annotations", leader + ".metadata.annotations", worker + ".metadata.annotations"},
		{newSet(withLeaderTemplate()), "spec.template.metadata.labels", "", ""},
		{newSet(withLeaderTemplate()), "spec.template.spec.volumes[1].name", leader + ".spec.volumes[1].name", worker + ".spec.volumes[1].name"},
		{newSet(claims), "spec.volumeClaimTemplates[0].spec.resources[storage]", "spec.leaderWorkerTemplate.volumeClaimTemplates[0].spec.resources[storage]", "spec.leaderWorkerTemplate.volumeClaimTemplates[0].spec.resources[storage]"},
		{newSet(), "metadata.ownerReferences[0].uid", "", ""},
		{newSet(), "spec.serviceName", "", ""},
		{newSet(), "", "", ""},
	} {
		drafts := admission.Drafts(tt.set)
		for i, want := range []string{tt.leaders, tt.workers} {
			invalid := apierrors.NewInvalid(schema.GroupKind{}, "w", nil)
			invalid.ErrStatus.Details.Causes = []metav1.StatusCause{{Field: tt.cause, Message: "no"}}
			got := drafts[i].Faults(invalid)
			expect.That(t, (want != "" || len(got) == 0) && (want == "" || slices.Equal(got, []string{want + ": no"})),
				"%s of draft %d: got %q, want %q", tt.cause, i, got, want)
		}
	}
}

// A draft has the template that the operator writes.
func TestDraftsAreWhatTheOperatorMakes(t *testing.T) {
	hash := func(set *lwsv1.LeaderWorkerSet) { set.Spec.GroupIdentity = lwsv1.HashGroupIdentity }
	for _, identity := range []change{func(*lwsv1.LeaderWorkerSet) {}, hash} {
		set := newSet(identity, withLeaderTemplate())
		set.UID = "u"
		drafts := admission.Drafts(set)
		if deployment, isDeployment := drafts[0].Object.(*appsv1.Deployment); isDeployment != (set.Spec.GroupIdentity == lwsv1.HashGroupIdentity) ||
			isDeployment && deployment.Spec.Template.Spec.Containers[0].Image != "image:1" {
			t.Errorf("leaders: got %T", drafts[0].Object)
		}
		for _, draft := range drafts {
			owner := metav1.GetControllerOf(draft.Object)
			if owner == nil || owner.UID == "" || draft.Object.GetName() != "" || draft.Object.GetGenerateName() == "" {
				t.Errorf("%T: owner %+v, name %q", draft.Object, owner, draft.Object.GetName())
			}
		}
	}
}
