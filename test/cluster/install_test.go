package cluster

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/webhook/certs"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

// keepFields lets a former version be installed beside the present definition, as in a roll-back.
const keepFields = "--keep-fields"

// An upgrade from a former version replaces no pod that the former version would have kept, and loses no PVC.
// LOCKSTEP_FROM is the program of that version: see "make upgrade".
func TestUpgrade(t *testing.T) {
	s := newScene(t)
	_, present := s.withFormer()
	s.Check("run the former version", errors.Join(bed.Operator.Install(keepFields), bed.Operator.Start()))
	rest := s.settled(s.newSet("rest", 3, 2, imageA, uniquePerReplica))
	data := s.settled(s.newSet("data", 2, 2, imageA, volumes(deleteClaims, deleteClaims)))
	kept := s.settled(s.newSet("kept", 2, 2, imageA, volumes(keepClaims, keepClaims)))
	roll := s.settled(s.newSet("roll", 6, 2, imageA, budget(1, 0, 4)))
	fail := s.settled(s.newSet("fail", 3, 2, imageA))
	claims := s.awaitBound(8)
	s.crash("fail-2-1", 1)
	s.awaitRecreated(fail, s.UIDs(), 2)
	used := s.claim("used")

	// The upgrade stops half-way: the roles are the present ones, and the former operator goes on.
	bed.Operator.Program = present
	s.Check("install the present version", bed.Operator.Install())
	s.crash("fail-1-1", 1)
	s.awaitRecreated(fail, s.UIDs(), 1)
	user := s.user("user", []string{"used"})
	s.Remove(used)

	roll = s.become(roll, pull(imageB))
	s.awaitGroups("two groups are rolled", roll, map[string]int{imageA: 4, imageB: 2})
	s.Check("stop the scheduler", bed.Plane.Kill(scheduler)) // the next group cannot become ready
	roll = s.become(roll, unpartitioned)
	s.awaitGroups("a group rolls", roll, map[string]int{imageA: 3, imageB: 2})
	s.Check("stop the former operator", bed.Operator.Kill())
	s.crash("fail-0-1", 1) // while no operator runs
	rolled := s.readyGroups(roll)
	before, mark := s.UIDs(), s.Changes()

	s.Check("upgrade", errors.Join(bed.Operator.Start(), bed.Plane.Restart(scheduler)))
	s.awaitSettled(roll)
	s.Eventually("the group that failed is another one", func() error {
		if s.UIDs()["fail-0"] == before["fail-0"] {
			return drill.ErrStill
		}
		return s.unsettled(fail)
	})
	outlast(t)
	s.bornOnce(mark, func(pod string) bool {
		return inGroups(fail, pod, 0) || strings.HasPrefix(pod, "roll-") && rolled[pod[len("roll-"):][:1]] != imageB
	})
	for _, set := range []*lwsv1.LeaderWorkerSet{rest, data, kept} {
		same(t, "created for set "+set.Name, births{}, s.bornInto(set.UID, mark))
	}

	s.Remove(user, client.GracePeriodSeconds(0))
	s.AwaitGone(used)
	s.awaitClaims("PVCs are the same", claims)
	s.awaitSettled(s.become(data, `{"spec":{"replicas":1}}`))
	delete(claims, "data-data-1")
	delete(claims, "data-data-1-1")
	s.awaitClaims("the PVCs of the group that was scaled away are gone", claims)

	before, mark = s.UIDs(), s.Changes()
	out, err := s.swapOperator(present)
	s.Check("hand back: "+out, err)
	s.bornOnce(mark, func(string) bool { return false })
	s.wantKept(before, func(string) bool { return false })
}

// TestUpgradeRefusesNoWrite replaces a replica of a former version by one of this, while a client writes ten times a
// second. The replicas stand behind one address, as behind a Service. A former replica that restarts after the roles have
// changed goes on.
func TestUpgradeRefusesNoWrite(t *testing.T) {
	s := newScene(t)
	former, present := s.withFormer()
	ports, err := drill.FreePorts(6)
	s.Check("find ports", err)
	replica := func(n int, program string) *drill.Operator {
		o := &drill.Operator{Program: program, Kubeconfig: bed.Operator.Kubeconfig, Reaper: bed.Reaper,
			Log: fmt.Sprintf("%s.%d", bed.Operator.Log, n), Webhooks: ports[2*n], Probes: ports[2*n+1]}
		s.Check("start a replica", o.Start("--leader-elect"))
		return o
	}
	front, err := drill.NewFront(bed.Operator.Webhooks, ports[0])
	s.Check("stand in for the Service", err)
	t.Cleanup(func() { _ = front.Close() })

	s.Check("install the former version", bed.Operator.Install(keepFields))
	first := replica(0, former)
	set := s.settled(s.newSet("a", 1, 2, imageA))
	writes := drill.NewWrites(t.Context(), s.Client, set)
	bed.Operator.Program = present
	s.Check("install the present version", bed.Operator.Install())
	second := replica(1, former)
	front.To(ports[0], ports[2])
	s.Check("end a former replica", first.End())
	third := replica(2, present)
	front.To(ports[2], ports[4])

	secret := &corev1.Secret{}
	s.Check("read the authority", s.Client.Get(t.Context(), client.ObjectKey{Namespace: "lws-system", Name: certs.AuthoritySecret}, secret))
	authority, err := certs.ReadAuthority(secret.Data, time.Now())
	s.Check("read the authority", err)
	s.Eventually("the replica presents a certificate of the authority", func() error {
		conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[4]), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		return conn.ConnectionState().PeerCertificates[0].CheckSignatureFrom(authority.Leaf)
	})
	front.To(ports[4])
	s.Check("end the last former replica", second.End())
	made := writes.Rounds()
	s.Until("writes follow the upgrade", func() bool { return writes.Rounds() > made+10 })
	writes.End(t)
	s.settled(s.newSet("b", 1, 2, imageA))
	s.Check("end the replica", third.End())
}

// withFormer uninstalls Lockstep until the test ends, and leaves its place to the former version. It returns the programs
// of both.
func (s *scene) withFormer() (former, present string) {
	former, present = os.Getenv("LOCKSTEP_FROM"), bed.Operator.Program
	expect.Must(s, former != "", "LOCKSTEP_FROM: want the path of the former lockstep; run \"make upgrade\"")
	out, err := s.swapOperator(former)
	s.Check("uninstall: "+out, err)
	s.Cleanup(func() {
		_ = bed.Operator.Kill()
		bed.Operator.Program = present
		must(s.T, errors.Join(bed.Operator.Install(), bed.Operator.Start()))
	})
	return former, present
}

// swapOperator ends the operator, uninstalls it and keeps the sets.
func (s *scene) swapOperator(next string) (string, error) {
	s.Eventually("no PVC of another scene waits", s.alone)
	s.Check("stop the operator", bed.Operator.Kill())
	out, err := uninstall()
	bed.Operator.Program = next
	return out, err
}

// bornOnce checks that no pod was created twice since a mark, and only pods that may be.
func (s *scene) bornOnce(mark int, may func(pod string) bool) {
	count := map[string]int{}
	for _, r := range bornSince[*corev1.Pod](s, mark) {
		name := r.Last.GetName()
		if count[name]++; count[name] > 1 || !may(name) {
			s.Errorf("pod %s was created %d times", name, count[name])
		}
	}
}

// uninstall runs "lockstep uninstall --keep-sets".
func uninstall() (string, error) {
	out, err := exec.Command(bed.Operator.Program, "uninstall", "--keep-sets", "--timeout", patience.String(), "--kubeconfig", bed.Operator.Kubeconfig).CombinedOutput()
	return string(out), err
}

// uninstalled ends the operator and uninstalls Lockstep.
func (s *scene) uninstalled() {
	s.Check("stop the operator", bed.Operator.Kill())
	out, err := uninstall()
	s.Log(out)
	s.Check("uninstall", err)
}

// TestUninstallWithProtectedClaims removes Lockstep while it does not run. A terminating PVC in use stops
// that. In the end only built-in controllers protect PVCs.
func TestUninstallWithProtectedClaims(t *testing.T) {
	s := newScene(t)
	used, living := s.claim("used"), s.claim("living")
	pod := s.user("user", []string{"used"})
	s.Remove(used)
	s.stays(used)
	s.Eventually("the scenes before have ended", s.alone) // while there is an operator that lets their claims go
	s.Check("stop the operator", bed.Operator.Kill())
	t.Cleanup(func() { must(t, errors.Join(bed.Operator.Install(), bed.Operator.Start())) })

	out, err := uninstall()
	if err == nil || !strings.Contains(out, s.Namespace+"/used (is being deleted)") || !strings.Contains(out, "nothing was removed") {
		t.Fatalf("with a claim in use: %v\n%s", err, out)
	}
	policies := &admissionv1.MutatingAdmissionPolicyList{}
	s.Check("list policies", s.Client.List(t.Context(), policies))
	expect.Must(t, len(policies.Items) > 0, "there was no policy to take away")

	s.Remove(pod, force)
	out, err = uninstall()
	t.Logf("%s", out)
	s.Check("uninstall", err)
	s.AwaitGone(used)
	s.AwaitFinalizers(living, podProtection)
	s.Check("list policies", s.Client.List(t.Context(), policies))
	expect.Equalf(t, 0, len(policies.Items), "policies that are left")
	s.Remove(living)
	s.AwaitGone(living)
}

// alone is an error while a terminating PVC of another scene waits for Lockstep.
func (s *scene) alone() error {
	list := &corev1.PersistentVolumeClaimList{}
	err := s.Client.List(s.Context(), list)
	for i := range list.Items {
		claim := &list.Items[i]
		waits := slices.Contains(claim.Finalizers, podProtection) || slices.Contains(claim.Finalizers, barrier)
		if claim.Namespace != s.Namespace && claim.DeletionTimestamp != nil && waits {
			err = errors.Join(err, fmt.Errorf("PVC %s of %s is being deleted", claim.Name, claim.Namespace))
		}
	}
	return err
}

// laterAPIs came after Kubernetes 1.34.
const laterAPIs = "admissionregistration.k8s.io/v1/mutatingadmissionpolicies=false," +
	"admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings=false"

// withoutLaterFeatures switches off, until the test ends, what Kubernetes 1.34 lacks, and installs again.
func withoutLaterFeatures(t *testing.T) {
	t.Helper()
	become := func(apis, plugins, gate string) error {
		gates := []string{"--feature-gates", "MaxUnavailableStatefulSet=" + gate}
		return errors.Join(
			bed.Operator.Kill(),
			bed.Plane.Restart(apiServer, append(gates, "--runtime-config", apis, "--disable-admission", plugins)...),
			bed.Plane.Restart(controllerManager, gates...),
			bed.Plane.Restart(scheduler),
			bed.Operator.Install(), bed.Operator.Start())
	}
	t.Cleanup(func() { must(t, become("", "", "true")) })
	must(t, become(laterAPIs, "MutatingAdmissionPolicy", "false"))
}

// TestWithoutLaterFeatures runs, rolls and protects a set on an API server that serves what Kubernetes
// 1.34 does. The operator adds the barrier to PVCs itself, and check names what is missing.
func TestWithoutLaterFeatures(t *testing.T) {
	withoutLaterFeatures(t)
	s := newScene(t)
	set := s.settled(s.newSet("a", 2, 2, imageA, volumes(keepClaims, keepClaims)))
	s.awaitProtected("data-a-0", "data-a-1")
	s.awaitSettled(s.become(set, pull(imageB)))

	claim := s.claim("used")
	s.awaitProtected(claim.Name)
	user := s.user("user", []string{claim.Name})
	s.Remove(claim)
	s.stays(claim)
	s.Remove(user)
	s.AwaitGone(claim)

	rolled := newScene(t)
	rolled.rollTen() // the StatefulSet controller replaces one leader at a time
	if kept := rolled.StatefulSet("a").Spec.UpdateStrategy.RollingUpdate.MaxUnavailable; kept != nil {
		t.Errorf("invalid run: the server keeps maxUnavailable %s", kept)
	}

	found, _, _ := s.Plugin("", "check") // without leader election there is no leader
	for _, missing := range []string{"MutatingAdmissionPolicy", "maxUnavailable"} {
		expect.Says(t, found, missing)
	}
}
