package monitoring

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

var (
	bed        *drill.Bed
	prometheus *server
)

func TestMain(m *testing.M) {
	if programs == "" {
		os.Exit(m.Run())
	}
	drill.Main(m, raise, func() error { return nil })
}

// raise starts a control plane, the operator with metrics on a loopback address, and Prometheus.
func raise(dir string, reaper *drill.Reaper) (err error) {
	ports, err := drill.FreePorts(1)
	if err != nil {
		return err
	}
	if bed, err = drill.NewBed(dir, reaper, drill.Plane{Nodes: 4, QPS: 100}); err != nil {
		return err
	}
	if err = bed.Raise("monitoring", func(drill.Request) bool { return false }, "--metrics-bind-address", "127.0.0.1:"+strconv.Itoa(ports[0])); err != nil {
		return err
	}
	prometheus, err = startPrometheus(dir, reaper, ports[0])
	return err
}

// scene is a drill that Prometheus watches.
type scene struct{ *drill.Scene }

func (s *scene) set(name string, replicas int32, edits ...func(*lwsv1.LeaderWorkerSet)) *lwsv1.LeaderWorkerSet {
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "serve", Image: "registry.example.com/serve:1"}}}
	set := drill.NewSet(s.Namespace, name, replicas, 2, pod, edits...)
	s.Create(set)
	return set
}

// onAccelerators has every pod of a set request eight accelerators of a kind that no node has.
func onAccelerators(set *lwsv1.LeaderWorkerSet) {
	limits := corev1.ResourceList{"example.com/gpu": resource.MustParse("8")}
	set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Resources.Limits = limits
}

// crash reports that a container of a pod ran out of memory and was started again.
func (s *scene) crash(name string) {
	s.PatchStatus(&corev1.Pod{ObjectMeta: s.Meta(name)}, `{"status":{"containerStatuses":[{"name":"serve","image":"x","imageID":"","restartCount":1,
		"ready":true,"started":true,"state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}},
		"lastState":{"terminated":{"exitCode":137,"reason":"OOMKilled"}}}]}}`)
}

// shows waits until a query in this namespace has a series with a value of at least least. NAMESPACE stands for a selector.
func (s *scene) shows(least float64, expression string) {
	expression = strings.ReplaceAll(expression, "NAMESPACE", fmt.Sprintf("namespace=%q", s.Namespace))
	s.Eventually(fmt.Sprintf("%s is at least %v", expression, least), func() error {
		found, err := prometheus.query(expression)
		for _, one := range found {
			if float64(one.Value) >= least {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("found %v", found))
	})
}

func (s *scene) groups(least float64, name, state string) {
	s.shows(least, fmt.Sprintf(`lockstep_set_groups{NAMESPACE, name=%q, state=%q}`, name, state))
}

// lasts waits until a condition has been True for a while: a dashboard shows something then.
func (s *scene) lasts(name, condition string) {
	s.shows(20, fmt.Sprintf(`lockstep_set_condition_seconds{NAMESPACE, name=%q, condition=%q}`, name, condition))
}

// TestDashboards plays what dashboards are for: a set that crashes, one that rolls, one that waits, one without
// accelerators, and a PVC in use that is deleted. Then every query of every panel has an answer.
func TestDashboards(t *testing.T) {
	needPrograms(t)
	began := time.Now()
	s := &scene{drill.NewScene(t, bed)}
	s.MayWrite(s.Namespace)
	s.set("steady", 4)
	s.set("crashing", 2, func(set *lwsv1.LeaderWorkerSet) {
		set.Annotations = map[string]string{"lockstep.dev/restart-backoff": "first=1h,max=1h"}
	})
	rolled := s.set("rolled", 4)
	former := s.set("former", 1)
	waiting := s.set("hungry", 3, onAccelerators)
	for name, n := range map[string]float64{"steady": 4, "crashing": 2, "rolled": 4, "former": 1} {
		s.groups(n, name, "ready")
	}
	s.groups(3, "hungry", "starting")
	s.lasts("steady", "Available")

	s.crashTwice("crashing-1-1", "crashing")
	s.Check("roll", s.Client.Patch(t.Context(), rolled, drill.Merge(`{"spec":{"leaderWorkerTemplate":{"workerTemplate":{"spec":{"containers":[
		{"name":"serve","image":"registry.example.com/serve:2","resources":{"limits":{"example.com/gpu":"8"}}}]}}}}}`)))
	s.recreatedWithLeftover(former)
	s.Check("scale", s.Client.Patch(t.Context(), waiting, drill.Merge(`{"spec":{"replicas":1}}`)))
	claim := s.deletedInUse()

	s.groups(1, "crashing", "backingOff")
	s.lasts("crashing", "RestartBackOff")
	s.groups(1, "former", "waiting")
	s.groups(1, "rolled", "starting")
	s.shows(1, `lockstep_set_rollout_groups_left{NAMESPACE, name="rolled"}`)
	s.lasts("rolled", "UpdateInProgress")
	s.shows(1, `lockstep_set_condition_seconds{NAMESPACE, name="former", reason="WaitingForPreviousIncarnation"}`)
	s.shows(4, `lockstep_set_pods_beyond_need_total{NAMESPACE, name="hungry"}`)
	s.shows(16, `lockstep_set_accelerators_idle{NAMESPACE, name="hungry", resource="example.com/gpu", state="starting"}`)
	s.shows(1, `lockstep_group_restarts_total{NAMESPACE, name="crashing", failure="PodRestarted", exit="137"}`)
	s.shows(1, `lockstep_protection_claims_held{reason="InUse"}`)
	s.shows(1, `ALERTS{NAMESPACE, alertname="LockstepSetDown", cluster="drill", name="hungry"}`)
	s.shows(1, `ALERTS{NAMESPACE, alertname="LockstepSetDegraded", alertstate="pending", name="hungry"}`)
	s.shows(1, `ALERTS{NAMESPACE, alertname="LockstepPreviousObjectStuck", alertstate="pending", name="former"}`)
	s.shows(1, `ALERTS{NAMESPACE, alertname="LockstepGroupCrashLooping", alertstate="pending", name="crashing"}`)
	prometheus.checkScraped(t)
	prometheus.checkRules(t)
	for name, d := range readDashboards(t) {
		s.checkPanels(name, d, began)
	}

	s.Remove(waiting)
	s.Remove(&lwsv1.LeaderWorkerSet{ObjectMeta: s.Meta("crashing")})
	s.Until("the series of deleted sets are gone", func() bool {
		found, err := prometheus.query(fmt.Sprintf(`{namespace=%q, name=~"hungry|crashing", __name__=~"lockstep_.*"}`, s.Namespace))
		return err == nil && len(found) == 0
	})
	s.Remove(&corev1.Pod{ObjectMeta: s.Meta("user")})
	s.AwaitGone(claim)
}

// crashTwice makes a group fail twice in a row: the second restart waits for the back-off.
// The pods show that the group is ready again, and the metrics of a moment ago do not.
func (s *scene) crashTwice(pod, set string) {
	first := s.Pod(pod).UID
	s.crash(pod)
	s.Until("the pod is recreated and ready", func() bool {
		again := s.Pod(pod)
		return again != nil && again.UID != first && drill.PodReady(again)
	})
	s.groups(2, set, "ready")
	s.crash(pod)
}

// recreatedWithLeftover deletes a set, one pod of which cannot go, and creates it again.
func (s *scene) recreatedWithLeftover(set *lwsv1.LeaderWorkerSet) {
	leader := s.Pod(set.Name + "-0")
	s.Patch(leader, `{"metadata":{"finalizers":["example.com/stays"]}}`)
	s.Remove(set, client.PropagationPolicy(metav1.DeletePropagationBackground))
	s.set(set.Name, *set.Spec.Replicas)
}

// deletedInUse deletes a PVC that a pod uses.
func (s *scene) deletedInUse() *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: s.Meta("data"), Spec: drill.ClaimSpec()}
	claim.Spec.StorageClassName = new(string)
	s.Create(claim)
	user := &corev1.Pod{ObjectMeta: s.Meta("user"), Spec: corev1.PodSpec{
		NodeName: s.Pod("steady-0").Spec.NodeName, Containers: []corev1.Container{{Name: "c", Image: "registry.example.com/serve:1"}},
		Volumes: []corev1.Volume{drill.ClaimVolume("data", "data")}, TerminationGracePeriodSeconds: new(int64(1)),
	}}
	s.Create(user)
	s.AwaitPVC("data", "is protected", func(claim *corev1.PersistentVolumeClaim) error {
		if !drill.IsProtected(claim) {
			return fmt.Errorf("it has finalizers %v", claim.Finalizers)
		}
		return nil
	})
	s.Remove(claim)
	return claim
}

// checkPanels checks that each query of a dashboard has an answer, and plots them if asked to.
func (s *scene) checkPanels(name string, d dashboard, began time.Time) {
	values := strings.NewReplacer("$__rate_interval", "10s", "$__range", "1m", "$cluster", "drill", "$namespace", s.Namespace, "$name", "rolled")
	var charts []chart
	for _, panel := range d.Panels {
		c := chart{title: panel.Title}
		for _, target := range panel.Targets {
			found, err := prometheus.history(values.Replace(target.Expr), began)
			if err != nil || len(found) == 0 && !panel.mayBeEmpty() {
				s.Errorf("%s: panel %q shows nothing: %v\n%s", name, panel.Title, err, values.Replace(target.Expr))
			}
			for _, one := range found {
				c.lines = append(c.lines, line{legend(target.LegendFormat, one.Metric), one.Values})
			}
		}
		if panel.Type == "timeseries" {
			charts = append(charts, c)
		}
	}
	if dir := os.Getenv("LOCKSTEP_PLOTS"); dir != "" {
		s.Check("plot", plot(dir+"/"+name+".svg", d.Title, charts))
	}
}
