package admission_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	strictjson "sigs.k8s.io/json"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/disaggregated/admission"
	sets "lockstep.dev/lockstep/internal/lws/admission"
	"lockstep.dev/lockstep/internal/quantity"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

type change = func(*dsv1.DisaggregatedSet)

// newSet is a set of two roles, each of 3 groups of 4, that nothing is wrong with.
func newSet(changes ...change) *dsv1.DisaggregatedSet {
	set := &dsv1.DisaggregatedSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "d", UID: "u"}}
	for _, name := range []string{"prefill", "decode"} {
		set.Spec.Roles = append(set.Spec.Roles, dsv1.DisaggregatedRole{Name: name, Spec: fakeapi.Set("", 3, 4).Spec})
	}
	return fakeapi.Edited(set, changes...)
}

// role changes the first role.
func role(changes ...func(*dsv1.DisaggregatedRole)) change {
	return func(set *dsv1.DisaggregatedSet) { fakeapi.Edited(&set.Spec.Roles[0], changes...) }
}

// spec changes the spec of the first role.
func spec(change func(*lwsv1.LeaderWorkerSetSpec)) change {
	return role(func(r *dsv1.DisaggregatedRole) { change(&r.Spec) })
}

func annotated(key, value string) change {
	return func(set *dsv1.DisaggregatedSet) { metav1.SetMetaDataAnnotation(&set.ObjectMeta, key, value) }
}

func named(name string) change { return func(set *dsv1.DisaggregatedSet) { set.Name = name } }

func sliced(n int32) change { return func(set *dsv1.DisaggregatedSet) { set.Spec.Slices = &n } }

func replicas(n int32) change {
	return spec(func(s *lwsv1.LeaderWorkerSetSpec) { s.Replicas = &n })
}

func sized(n int32) change {
	return spec(func(s *lwsv1.LeaderWorkerSetSpec) { s.LeaderWorkerTemplate.Size = &n })
}

func budget(unavailable, surge string) change {
	return spec(func(s *lwsv1.LeaderWorkerSetSpec) {
		s.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{MaxUnavailable: intstr.Parse(unavailable), MaxSurge: intstr.Parse(surge)}
	})
}

func partition(n int32) change {
	return spec(func(s *lwsv1.LeaderWorkerSetSpec) {
		s.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{Partition: &n, MaxUnavailable: intstr.FromInt32(1)}
	})
}

func placed(kind dsv1.PlacementType, topology string) change {
	return func(set *dsv1.DisaggregatedSet) {
		set.Spec.PlacementPolicy = &dsv1.PlacementPolicy{Type: kind, Topology: topology}
	}
}

func subgroups(n int32) change {
	return spec(func(s *lwsv1.LeaderWorkerSetSpec) {
		s.LeaderWorkerTemplate.SubGroupPolicy = &lwsv1.SubGroupPolicy{SubGroupSize: &n}
	})
}

func exclusive(key string) func(*metav1.ObjectMeta) {
	return func(meta *metav1.ObjectMeta) { metav1.SetMetaDataAnnotation(meta, key, "rack") }
}

var (
	external = role(func(r *dsv1.DisaggregatedRole) { r.Scaling = &dsv1.RoleScaling{Mode: dsv1.ScalingExternal} })
	static   = role(func(r *dsv1.DisaggregatedRole) { r.Scaling = &dsv1.RoleScaling{Mode: dsv1.ScalingStatic} })
	hash     = spec(func(s *lwsv1.LeaderWorkerSetSpec) { s.GroupIdentity = lwsv1.HashGroupIdentity })
	lone     = func(set *dsv1.DisaggregatedSet) { set.Spec.Roles = set.Spec.Roles[:1] }
)

// judge is how the webhook judges a LeaderWorkerSet.
func judge(_ string, set *lwsv1.LeaderWorkerSet) field.ErrorList {
	sets.Default(set)
	return sets.Scheduling{}.ValidateCreate(set)
}

const (
	rolling   = "spec.roles[0].spec.rolloutStrategy.rollingUpdateConfiguration."
	badNumber = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
	zero      = "must not be 0 when `maxSurge` is 0"
)

// tooLong is the fault of a name that makes labels of so many characters.
func tooLong(role string, longest, limit int) string {
	return fmt.Sprintf("spec.roles[0].name: Invalid value: %q: the generated names (%d chars) would exceed the DNS-1035 limit of 63 characters (accounting for StatefulSet revision hash labels); reduce the DisaggregatedSet name and/or role name (combined limit: %d characters)", role, longest, limit)
}

// The texts are a contract, like the paths. Names are of a set and "prefill", which has 7 characters.
func TestValidate(t *testing.T) {
	const exclusiveKey, subgroupKey = lwsv1.ExclusiveKeyAnnotationKey, lwsv1.SubGroupExclusiveKeyAnnotationKey
	notBoth := func(key, kind string) string {
		return `spec.roles[0]: Forbidden: the "leaderworkerset.sigs.k8s.io/` + key + `" annotation must not be combined with a non-None spec.placementPolicy.type (` + kind + ")"
	}
	ofRole := func(change func(*metav1.ObjectMeta)) change {
		return role(func(r *dsv1.DisaggregatedRole) { change(&r.Metadata) })
	}
	ofWorkers := func(change func(*metav1.ObjectMeta)) change {
		return spec(func(s *lwsv1.LeaderWorkerSetSpec) { change(&s.LeaderWorkerTemplate.WorkerTemplate.ObjectMeta) })
	}
	ofLeaders := func(change func(*metav1.ObjectMeta)) change {
		return spec(func(s *lwsv1.LeaderWorkerSetSpec) {
			leader := fakeapi.Template("leader", "image:1")
			change(&leader.ObjectMeta)
			s.LeaderWorkerTemplate.LeaderTemplate = &leader
		})
	}
	strategy := func(of lwsv1.RolloutStrategyType) change {
		return spec(func(s *lwsv1.LeaderWorkerSetSpec) { s.RolloutStrategy.Type = of })
	}
	many := func(set *dsv1.DisaggregatedSet) {
		for range 9 {
			set.Spec.Roles = append(set.Spec.Roles, set.Spec.Roles[0])
		}
	}
	policy, partners := func(value string) change { return annotated(dsv1.RestartPolicyAnnotationKey, value) }, func(value string) change {
		return annotated(dsv1.RestartPartnersAnnotationKey, value)
	}
	long := func(n int) change { return named(strings.Repeat("a", n)) }
	for name, tt := range map[string]struct {
		set  *dsv1.DisaggregatedSet
		want []string
	}{
		"good":           {newSet(), nil},
		"one role":       {newSet(lone), nil},
		"no role":        {&dsv1.DisaggregatedSet{}, nil},
		"too many roles": {newSet(many), []string{"spec.roles: Too many: 11: must have at most 10 items"}},

		"too long a name for any object": {newSet(long(254)), []string{"metadata.name: Too long: may not be more than 253 bytes"}},

		"no strategy":                       {newSet(strategy("")), nil},
		"another strategy":                  {newSet(strategy("OnDelete")), []string{`spec.roles[0].spec.rolloutStrategy.type: Unsupported value: "OnDelete": supported values: "RollingUpdate", ""`}},
		"partition 0":                       {newSet(partition(0)), nil},
		"partition":                         {newSet(partition(1)), []string{rolling + "partition: Forbidden: partition is not supported by DisaggregatedSet; rolling updates are managed across roles by the DisaggregatedSet controller"}},
		"a partition that is refused twice": {newSet(partition(-1)), []string{rolling + "partition: Forbidden: partition is not supported by DisaggregatedSet; rolling updates are managed across roles by the DisaggregatedSet controller"}},

		"neither number nor percentage": {newSet(budget("abc", "1")), []string{rolling + `maxUnavailable: Invalid value: "abc": ` + badNumber, rolling + `maxUnavailable: Invalid value: "abc": invalid value`}},
		"negative":                      {newSet(budget("1", "-1")), []string{rolling + "maxSurge: Invalid value: -1: must be greater than or equal to 0"}},
		"more than all":                 {newSet(budget("101%", "0")), []string{rolling + `maxUnavailable: Invalid value: "101%": must not be greater than 100%`}},
		"nothing may change":            {newSet(budget("0%", "0")), []string{rolling + `maxUnavailable: Invalid value: "0%": ` + zero}},
		"rounded down to nothing":       {newSet(budget("10%", "0")), []string{rolling + `maxUnavailable: Invalid value: "10%": ` + zero}},
		"enough groups for a tenth":     {newSet(budget("10%", "0"), replicas(10)), nil},
		"rounded up":                    {newSet(budget("0", "10%")), nil},
		"no groups":                     {newSet(budget("0", "0"), replicas(0)), nil},

		"external":             {newSet(external), nil},
		"external with slices": {newSet(external, sliced(2)), []string{"spec.slices: Forbidden: spec.slices > 1 is not supported while any role has scaling.mode: External (alpha restriction)"}},
		"external, one slice":  {newSet(external, sliced(1)), nil},
		"static with slices":   {newSet(static, sliced(100)), nil},
		"longest scaler name":  {newSet(external, lone, long(245)), []string{tooLong("prefill", 277, 38)}},
		"too long a scaler name": {newSet(external, lone, long(246)), []string{
			`spec.roles[0].name: Invalid value: "prefill": would produce scaler name "` + strings.Repeat("a", 246) + `-prefill" exceeding 253 characters`, tooLong("prefill", 278, 38)}},

		"longest name":                                    {newSet(lone, long(31)), nil},
		"too long a name":                                 {newSet(lone, long(32)), []string{tooLong("prefill", 64, 38)}},
		"too long a name of an external role":             {newSet(lone, long(32), external), []string{tooLong("prefill", 64, 38)}},
		"longest name of ten groups":                      {newSet(lone, long(31), replicas(10)), nil},
		"too long a name for eleven":                      {newSet(lone, long(31), replicas(11)), []string{tooLong("prefill", 64, 37)}},
		"longest name of ten slices":                      {newSet(lone, long(31), sliced(10)), nil},
		"too long a name for eleven slices":               {newSet(lone, long(31), sliced(11)), []string{tooLong("prefill", 64, 37)}},
		"too long a name without workers":                 {newSet(lone, long(32), sized(1)), []string{tooLong("prefill", 64, 38)}},
		"no groups, too long a name":                      {newSet(lone, long(32), replicas(0)), []string{tooLong("prefill", 64, 38)}},
		"longest Hash name":                               {newSet(lone, hash, long(24), replicas(1000)), nil},
		"too long a Hash name":                            {newSet(lone, hash, long(25)), []string{tooLong("prefill", 64, 31)}},
		"longest Hash name without workers":               {newSet(lone, hash, sized(1), long(35)), nil},
		"too long a Hash name without them":               {newSet(lone, hash, sized(1), long(36)), []string{tooLong("prefill", 64, 42)}},
		"a LeaderWorkerSet of a role has no surge groups": {newSet(lone, long(31), replicas(10), budget("0", "1")), nil},

		"placed":         {newSet(placed("ExclusiveSlice", "rack")), nil},
		"placed nowhere": {newSet(placed("ExclusiveTopology", "")), []string{"spec.placementPolicy.topology: Required value: topology is required when type is not None"}},
		"placed by no label": {newSet(placed("ExclusiveSlice", "rack/")), []string{`spec.placementPolicy.topology: Invalid value: "rack/": must be the key of a node label: name part must be non-empty`,
			`spec.placementPolicy.topology: Invalid value: "rack/": must be the key of a node label: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`}},
		"not placed":         {newSet(placed("None", ""), ofRole(exclusive(exclusiveKey))), nil},
		"no type":            {newSet(placed("", ""), ofRole(exclusive(exclusiveKey))), nil},
		"placed twice":       {newSet(placed("ExclusiveSlice", "rack"), ofRole(exclusive(exclusiveKey))), []string{notBoth("exclusive-topology", "ExclusiveSlice")}},
		"workers placed too": {newSet(placed("ExclusiveTopology", "rack"), ofWorkers(exclusive(subgroupKey)), ofRole(exclusive(exclusiveKey))), []string{notBoth("exclusive-topology", "ExclusiveTopology"), notBoth("subgroup-exclusive-topology", "ExclusiveTopology")}},
		"leaders placed too": {newSet(placed("ExclusiveSlice", "rack"), ofLeaders(exclusive(exclusiveKey))), []string{notBoth("exclusive-topology", "ExclusiveSlice")}},

		"subgroups beside the leader": {newSet(subgroups(3)), nil},
		"subgroups that fit nothing": {newSet(subgroups(5)), []string{
			"spec.roles[0].spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize: Invalid value: 5: size or size - 1 must be divisible by subGroupSize",
			"spec.roles[0].spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize: Invalid value: 5: subGroupSize cannot be larger than size"}},
		"a name that begins with a digit": {newSet(lone, named("2d")), []string{
			`spec.roles[0].name: Invalid value: "2d-0-00000000-prefill": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')`}},
		"a label that is none": {newSet(ofRole(func(m *metav1.ObjectMeta) { m.Labels = map[string]string{"a": "b c"} })), []string{
			`spec.roles[0].metadata.labels: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`}},
		"an unknown scheduler": {newSet(ofRole(func(m *metav1.ObjectMeta) { metav1.SetMetaDataAnnotation(m, lwsv1.GangSchedulerAnnotationKey, "x") })), []string{
			`spec.roles[0].metadata.annotations[lockstep.dev/gang-scheduler]: Unsupported value: "x": supported values: "volcano", "none"`}},
		"Hash with a partition": {newSet(hash, partition(1)), []string{
			rolling + "partition: Forbidden: partition is not supported by DisaggregatedSet; rolling updates are managed across roles by the DisaggregatedSet controller",
			`spec.roles[0].spec.groupIdentity: Invalid value: "Hash": rollingUpdateConfiguration.partition is not supported with groupIdentity Hash`}},
		"Hash with claims": {newSet(hash, spec(func(s *lwsv1.LeaderWorkerSetSpec) {
			s.LeaderWorkerTemplate.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{}}
		})), []string{`spec.roles[0].spec.groupIdentity: Invalid value: "Hash": volumeClaimTemplates are not supported with groupIdentity Hash`}},

		"restart policies":              {newSet(policy("Restart")), nil},
		"fences one":                    {newSet(policy("Fence"), partners("decode")), nil},
		"restarts both":                 {newSet(policy("Restart"), partners("decode,prefill")), nil},
		"an unknown policy":             {newSet(policy("restart")), []string{`metadata.annotations[lockstep.dev/role-restart-policy]: Unsupported value: "restart": supported values: "Restart", "Fence"`}},
		"an empty policy":               {newSet(policy("")), []string{`metadata.annotations[lockstep.dev/role-restart-policy]: Unsupported value: "": supported values: "Restart", "Fence"`}},
		"unknown partners":              {newSet(policy("Restart"), partners("decode,router,cache")), []string{`metadata.annotations[lockstep.dev/role-restart-partners]: Unsupported value: "router": supported values: "prefill", "decode"`}},
		"partners with a space":         {newSet(policy("Restart"), partners("decode, prefill")), []string{`metadata.annotations[lockstep.dev/role-restart-partners]: Unsupported value: " prefill": supported values: "prefill", "decode"`}},
		"no partners":                   {newSet(policy("Restart"), partners("")), []string{`metadata.annotations[lockstep.dev/role-restart-partners]: Unsupported value: "": supported values: "prefill", "decode"`}},
		"partners without a policy":     {newSet(partners("decode")), []string{`metadata.annotations[lockstep.dev/role-restart-partners]: Forbidden: does nothing without the annotation lockstep.dev/role-restart-policy: set that to Restart or Fence, or remove this one`}},
		"a surge group, and no Service": {newSet(annotated(dsv1.SurgeOneAnnotationKey, "true"), annotated(dsv1.ServicesAnnotationKey, "false")), nil},
		"switches that are none": {newSet(annotated(dsv1.SurgeOneAnnotationKey, "yes"), annotated(dsv1.ServicesAnnotationKey, "")), []string{
			`metadata.annotations[lockstep.dev/allow-surge-group]: Unsupported value: "yes": supported values: "true", "false"`,
			`metadata.annotations[lockstep.dev/role-services]: Unsupported value: "": supported values: "true", "false"`}},
	} {
		before := tt.set.DeepCopy()
		got := fakeapi.Each(admission.Validate(tt.set, judge), (*field.Error).Error)
		expect.Equalf(t, tt.want, got, "%s", name)
		expect.That(t, equality.Semantic.DeepEqual(before, tt.set), "%s: the set was changed", name)
	}
}

// What enters by the rule of names has LeaderWorkerSets that enter, too.
func TestNamesAreNoLongerThanTheirLeaderWorkerSetsAllow(t *testing.T) {
	for _, kind := range []change{func(*dsv1.DisaggregatedSet) {}, hash} {
		for _, size := range []int32{1, 2} {
			for _, groups := range []int32{0, 1, 10, 11, 100, 101} {
				admitted := 0
				for n := 1; n < 64; n++ {
					set := newSet(lone, named(strings.Repeat("a", n)), kind, sized(size), replicas(groups), sliced(11))
					if faults := admission.Validate(set, func(string, *lwsv1.LeaderWorkerSet) field.ErrorList { return nil }); len(faults) == 0 {
						admitted = n
						expect.Emptyf(t, admission.Validate(set, judge), "faults of %d characters", n)
					}
				}
				expect.That(t, admitted > 20, "at most %d characters are admitted", admitted)
			}
		}
	}
}

func TestRolesAreJudgedAsTheSetsThatTheyBecome(t *testing.T) {
	set := newSet(sliced(11), named("d"), func(set *dsv1.DisaggregatedSet) {
		set.Spec.Roles[1].Metadata.Labels = map[string]string{"a": "b"}
	})
	var judged []*lwsv1.LeaderWorkerSet
	faults := admission.Validate(set, func(_ string, set *lwsv1.LeaderWorkerSet) field.ErrorList {
		judged = append(judged, set)
		return field.ErrorList{
			field.Required(field.NewPath("spec", "x"), ""), field.Required(field.NewPath("metadata", "name"), ""), field.Required(field.NewPath("metadata", "ownerReferences"), ""),
		}
	})
	expect.Equal(t, []string{"spec.roles[0].spec.x", "spec.roles[0].name", "spec.roles[1].spec.x", "spec.roles[1].name"},
		fakeapi.Each(faults, func(f *field.Error) string { return f.Field }))
	expect.Equal(t, []string{"ns d-10-00000000-prefill map[]", "ns d-10-00000000-decode map[a:b]"}, fakeapi.Each(judged, func(s *lwsv1.LeaderWorkerSet) string {
		owner := metav1.GetControllerOfNoCopy(s)
		expect.That(t, owner != nil && owner.UID == "u" && owner.Kind == "DisaggregatedSet", "the controller is %v", owner)
		return fmt.Sprint(s.Namespace, " ", s.Name, " ", s.Labels)
	}))
	expect.Equal(t, set.Spec.Roles[1].Spec, judged[1].Spec)
}

func TestWarnings(t *testing.T) {
	for name, tt := range map[string]struct {
		set  *dsv1.DisaggregatedSet
		want []string
	}{
		"static":                      {newSet(), nil},
		"external of one group":       {newSet(external, replicas(1)), nil},
		"external of no given number": {newSet(external, spec(func(s *lwsv1.LeaderWorkerSetSpec) { s.Replicas = nil })), nil},
		"external of two groups": {newSet(external, replicas(2)), []string{
			`role "prefill" sets scaling.mode: External and spec.replicas: 2 — spec.replicas is ignored; drive replicas via DisaggregatedSetRoleScaler "d-prefill" instead`}},
	} {
		expect.Equalf(t, tt.want, admission.Warnings(tt.set, nil), "%s", name)
	}
}

// The variables of a pod come before those of the user, who can refer to them.
func TestPodsKnowTheirRole(t *testing.T) {
	labels := map[string]string{dsv1.SetNameLabelKey: "d", dsv1.RoleLabelKey: "prefill", dsv1.SliceLabelKey: "7", dsv1.RevisionLabelKey: "4852664f"}
	without := func(key string) map[string]string {
		less := map[string]string{}
		for k, v := range labels {
			if k != key {
				less[k] = v
			}
		}
		return less
	}
	env := func(values ...string) (all []corev1.EnvVar) {
		for i := 0; i < len(values); i += 2 {
			all = append(all, corev1.EnvVar{Name: values[i], Value: values[i+1]})
		}
		return all
	}
	ours := func(slice string) []string {
		return []string{"DISAGGREGATEDSET_NAME", "d", "DISAGGREGATEDSET_ROLE", "prefill", "DISAGGREGATEDSET_SLICE", slice, "DISAGGREGATEDSET_REVISION", "4852664f"}
	}
	for name, tt := range map[string]struct {
		labels        map[string]string
		given, wanted []corev1.EnvVar
	}{
		"a pod":                  {labels, nil, env(ours("7")...)},
		"from before slices":     {without(dsv1.SliceLabelKey), nil, env(ours("0")...)},
		"variables of the user":  {labels, env("A", "$(DISAGGREGATEDSET_ROLE)", "A", "again"), env(append(ours("7"), "A", "$(DISAGGREGATEDSET_ROLE)", "A", "again")...)},
		"a variable of our name": {labels, env("A", "1", "DISAGGREGATEDSET_ROLE", "mine"), env(append(ours("7"), "A", "1")...)},
		"a pod of no set":        {without(dsv1.SetNameLabelKey), env("A", "1"), env("A", "1")},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: tt.labels}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "a", Env: tt.given}, {Name: "b", Env: tt.given}}, InitContainers: []corev1.Container{{Name: "i", Env: tt.given}},
			EphemeralContainers: []corev1.EphemeralContainer{{}},
		}}
		for range 3 {
			expect.OK(t, admission.MutatePod(pod))
			for _, container := range append(pod.Spec.Containers, pod.Spec.InitContainers...) {
				expect.Equalf(t, tt.wanted, container.Env, "%s: %s", name, container.Name)
			}
		}
		expect.That(t, pod.Spec.EphemeralContainers[0].Env == nil, "%s: an ephemeral container was touched", name)
	}
	long := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{dsv1.SetNameLabelKey: strings.Repeat("x", 64)}}}
	expect.ErrorSays(t, admission.MutatePod(long), "label disaggregatedset.x-k8s.io/name of a pod has 64 characters, at most 63 are allowed")
}

// FuzzValidate: every set is judged and warned of without harm, and unchanged.
func FuzzValidate(f *testing.F) {
	places := quantity.In[dsv1.DisaggregatedSet]()
	for _, set := range []*dsv1.DisaggregatedSet{
		{}, newSet(), newSet(external, sliced(-2147483648), replicas(-2147483648)), newSet(sliced(2147483647), replicas(2147483647), sized(2147483647)),
		newSet(hash, placed("x", ""), budget("99999999999999999999%", "2147483647"), named(strings.Repeat("-", 1<<12))), newSet(subgroups(0)),
		newSet(annotated(dsv1.RestartPolicyAnnotationKey, ""), annotated(dsv1.RestartPartnersAnnotationKey, strings.Repeat(",", 1<<12))),
	} {
		f.Add(expect.Value(json.Marshal(set))(f))
	}
	f.Add([]byte(`{"spec":{"roles":[null,{"scaling":{}},{"spec":{"leaderWorkerTemplate":{"subGroupPolicy":{}},"scheduling":{}}}],"placementPolicy":{"type":"ExclusiveSlice"}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		set := &dsv1.DisaggregatedSet{}
		if places.Check(raw) != nil || strictjson.UnmarshalCaseSensitivePreserveInts(raw, set) != nil {
			return
		}
		before := set.DeepCopy()
		_ = admission.Validate(set, judge).ToAggregate()
		admission.Warnings(set, nil)
		expect.Must(t, equality.Semantic.DeepEqual(before, set), "judging a set changed it")
	})
}
