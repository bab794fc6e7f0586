package admission_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lws/admission"
)

// withScheduling is the field as a user writes it.
func withScheduling(text string) change {
	return func(s *lwsv1.LeaderWorkerSet) {
		s.Spec.Scheduling = &lwsv1.Scheduling{}
		if err := yaml.UnmarshalStrict([]byte(text), s.Spec.Scheduling); err != nil {
			panic(err)
		}
	}
}

func controlled(s *lwsv1.LeaderWorkerSet) {
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "a/v1", Kind: "Parent", Name: "p", UID: "p", Controller: new(true)}}
}

func withClass(class string) change {
	return withWorkers(func(p *corev1.PodTemplateSpec) { p.Spec.PriorityClassName = class })
}

var (
	ready   change = func(s *lwsv1.LeaderWorkerSet) { s.Spec.StartupPolicy = lwsv1.LeaderReadyStartupPolicy }
	grouped        = withWorkers(func(p *corev1.PodTemplateSpec) {
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("g")}
	})
	claimed = withWorkers(func(p *corev1.PodTemplateSpec) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "net", ResourceClaimTemplateName: new("fast")}}
	})
	native  = admission.Scheduling{IsEnabled: true, Provider: gang.Kubernetes, Unserved: func(string) error { return nil }}
	volcano = admission.Scheduling{IsEnabled: true, Provider: gang.Volcano}
)

const (
	wholeGang    = `{schedulingPolicy: {gang: {}}}`
	workerGang   = `{replica: {worker: {schedulingPolicy: {gang: {}}}}}`
	notExclusive = "spec.scheduling: Forbidden: gang scheduling or workload topology constraints cannot be combined with exclusive topology in alpha"
	levelText    = "spec.scheduling: Invalid value: exactly one active scheduling level is required, got "
	template     = lwsv1.GroupTemplateNameAnnotationKey
	parent       = lwsv1.ParentPodGroupAnnotationKey
	annotations  = "metadata.annotations"
)

func TestValidateScheduling(t *testing.T) {
	unserved := func(kind string) admission.Scheduling {
		s := native
		s.Unserved = func(k string) error {
			if k == kind {
				return errors.New("gone")
			}
			return nil
		}
		return s
	}
	for name, tt := range map[string]struct {
		on   admission.Scheduling
		set  *lwsv1.LeaderWorkerSet
		want []string
	}{
		"gate off":              {admission.Scheduling{Provider: gang.Kubernetes}, newSet(scheduled), []string{"spec.scheduling: Forbidden: requires the WorkloadAwareScheduling feature gate"}},
		"no provider":           {admission.Scheduling{IsEnabled: true}, newSet(scheduled), []string{"spec.scheduling: Required value: requires a configured scheduler provider"}},
		"Workloads not served":  {unserved("Workload"), newSet(scheduled), []string{"spec.scheduling: Forbidden: scheduling.k8s.io/v1beta1 Workload API is not available: gone"}},
		"PodGroups not served":  {unserved("PodGroup"), newSet(scheduled), []string{"spec.scheduling: Forbidden: scheduling.k8s.io/v1beta1 PodGroup API is not available: gone"}},
		"without the field":     {unserved("Workload"), newSet(), nil},
		"each group":            {native, newSet(scheduled), nil},
		"each group, spelt out": {native, newSet(withScheduling(`{replica: {schedulingPolicy: {gang: {}}}}`)), nil},
		"the set":               {native, newSet(withScheduling(wholeGang)), nil},
		"roles":                 {native, newSet(withScheduling(`{replica: {leader: {schedulingPolicy: {gang: {minCount: 1}}}, worker: {schedulingPolicy: {gang: {minCount: 3}}}}}`)), nil},
		"the set and groups":    {native, newSet(withScheduling(`{schedulingPolicy: {basic: {}}, replica: {disruptionMode: {all: {}}}}`)), []string{levelText + "[lws replica]"}},
		"groups and roles":      {native, newSet(withScheduling(`{replica: {schedulingConstraints: {}, leader: {}}}`)), []string{levelText + "[replica role]"}},
		"all levels":            {native, newSet(withScheduling(`{schedulingConstraints: {}, replica: {disruptionMode: {all: {}}, worker: {}}}`)), []string{levelText + "[lws replica role]"}},
		"two classes":           {native, newSet(scheduled, withLeaderTemplate(), withClass("high")), []string{`spec.scheduling: Invalid value: "high": all managed pod templates must use the same priorityClassName`}},
		"a PodGroup of the user": {native, newSet(scheduled, grouped), []string{
			"spec.scheduling: Forbidden: managed pod templates must not set spec.schedulingGroup",
		}},
		"a count of groups": {native, newSet(withScheduling(`{schedulingPolicy: {gang: {minGroupCount: 2}}}`)), []string{
			"spec.scheduling: Forbidden: minGroupCount is not supported",
		}},
		"roles of one pod": {native, newSet(withSize(1), withScheduling(workerGang)), []string{
			"spec.leaderWorkerTemplate.size: Invalid value: 1: leader/worker scheduling requires size >= 2",
		}},
		"a part of the workers": {native, newSet(withScheduling(`{replica: {worker: {schedulingPolicy: {gang: {minCount: 2}}}}}`)), []string{
			"spec.scheduling: Invalid value: 2: must equal complete leaf membership 3",
		}},
		"workers that wait, in a gang with their leader": {native, newSet(scheduled, ready), []string{
			"spec.scheduling: Forbidden: a gang containing the leader and workers is incompatible with startupPolicy LeaderReady",
		}},
		"leaders alone, that are waited for": {native, newSet(scheduled, ready, withSize(1)), nil},
		"workers that wait, in a gang":       {native, newSet(withScheduling(workerGang), ready), nil},
		"workers that wait, and no gang":     {native, newSet(withScheduling(`{schedulingPolicy: {basic: {}}}`), ready), nil},
		"exclusive gangs":                    {native, newSet(withScheduling(workerGang), withAnnotation(lwsv1.ExclusiveKeyAnnotationKey, "rack")), []string{notExclusive}},
		"exclusive groups in a topology":     {native, newSet(withScheduling(`{schedulingConstraints: {topology: [{key: rack}]}}`), withAnnotation(lwsv1.ExclusiveKeyAnnotationKey, "rack")), []string{notExclusive}},
		"exclusive groups without gang":      {native, newSet(withScheduling(`{schedulingPolicy: {basic: {}}}`), withAnnotation(lwsv1.ExclusiveKeyAnnotationKey, "rack")), nil},
		"a claim that pods have, and one not": {native, newSet(claimed, withScheduling(`{replica: {worker: {resourceClaims: [{name: net, resourceClaimTemplateName: fast}, {name: gpu, resourceClaimName: a}]}}}`)), []string{
			`spec.scheduling: Invalid value: "gpu": must have a matching reference in every member pod template`,
		}},
		"Volcano": {volcano, newSet(withScheduling(`{replica: {schedulingPolicy: {gang: {}}}}`)), nil},
		"Volcano for the set": {volcano, newSet(withScheduling(wholeGang)), []string{
			"spec.scheduling: Forbidden: the Volcano provider supports the typed API only at replica level",
		}},
		"what Volcano lacks": {volcano, newSet(withScheduling(`{replica: {schedulingPolicy: {basic: {}}, schedulingConstraints: {topology: [{key: rack}]}, disruptionMode: {single: {}}}}`)), []string{
			"spec.scheduling: Forbidden: the Volcano provider does not support the Basic policy",
			"spec.scheduling: Forbidden: the Volcano provider does not support scheduling constraints",
			"spec.scheduling: Forbidden: the Volcano provider does not support a disruption mode",
		}},

		"delegated": {native, newSet(scheduled, controlled, withAnnotation(template, "w"), withAnnotation(parent, "cpg")), nil},
		"delegated by no controller, by role, to no template": {native, newSet(withScheduling(workerGang), withAnnotation(template, "")), []string{
			annotations + "[" + template + `]: Invalid value: "": must name a parent Workload template`,
			"spec.scheduling: Forbidden: delegated scheduling requires a controller owner",
			"spec.scheduling: Forbidden: delegated scheduling supports only whole-LWS or replica mode",
		}},
		"delegated to no group": {native, newSet(scheduled, controlled, withAnnotation(parent, "")), []string{
			annotations + "[" + parent + `]: Invalid value: "": requires the group-template-name delegation annotation`,
			annotations + "[" + parent + `]: Invalid value: "": must name a parent CompositePodGroup`,
		}},
	} {
		t.Run(name, func(t *testing.T) { checkFaults(t, tt.on.ValidateCreate(tt.set), tt.want) })
	}
}

func TestValidateSchedulingChange(t *testing.T) {
	const immutable = ": field is immutable"
	for name, tt := range map[string]struct {
		old, is []change
		want    []string
	}{
		"added":         {nil, []change{scheduled}, []string{"spec.scheduling: Forbidden: cannot add scheduling after creation"}},
		"removed":       {[]change{scheduled}, nil, []string{"spec.scheduling: Forbidden: cannot remove scheduling after creation"}},
		"another level": {[]change{scheduled}, []change{withScheduling(wholeGang)}, []string{"spec.scheduling: Forbidden: cannot switch the active scheduling level after creation"}},
		"another class": {[]change{scheduled}, []change{scheduled, withClass("high")}, []string{
			"spec.leaderWorkerTemplate: Forbidden: cannot change priorityClassName while workload-aware scheduling is configured",
		}},
		"the default spelt out": {[]change{scheduled}, []change{withScheduling(`{replica: {schedulingPolicy: {gang: {}}}}`)}, nil},
		"a policy removed": {[]change{withScheduling(`{replica: {schedulingPolicy: {basic: {}}}}`)}, []change{scheduled}, []string{
			"spec.scheduling.replica: Invalid value" + immutable,
		}},
		"a disruption mode added": {[]change{withScheduling(wholeGang)}, []change{withScheduling(`{schedulingPolicy: {gang: {}}, disruptionMode: {all: {}}}`)}, []string{
			"spec.scheduling: Invalid value" + immutable,
		}},
		"a size, and the count of it": {
			[]change{withScheduling(`{replica: {worker: {schedulingPolicy: {gang: {minCount: 3}}}}}`)},
			[]change{withSize(6), withScheduling(`{replica: {worker: {schedulingPolicy: {gang: {minCount: 5}}}}}`)}, nil,
		},
		"delegated later": {[]change{scheduled, controlled}, []change{scheduled, controlled, withAnnotation(template, "w")}, []string{
			annotations + "[" + template + `]: Invalid value: "w": is immutable once spec.scheduling is set`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			checkFaults(t, native.ValidateUpdate(newSet(tt.is...), newSet(tt.old...)), tt.want)
		})
	}
}
