// Package check is kubectl lockstep check: it finds out whether an installation is well, and before
// that whether one would go well.
//
// It knows what install would write, and compares it with what is there. It writes nothing: a set is
// created as a dry run, to see that the webhooks answer. What the user may not read is a warning that
// names the missing right, and never taken for absent.
package check

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/operator"
)

// Options say where and when to check.
type Options struct {
	// Client reads live.
	Client    client.Client
	Discovery discovery.DiscoveryInterface
	// TestNamespace is where a set is created as a dry run.
	TestNamespace string
	// Version is that of this program.
	Version string
	Now     time.Time
}

// check is a row of the table: what is read, and the verdict on it. Its name is its heading on the page.
type check struct {
	name  string
	reads []read
	judge func(*site, *findings)
}

const page = "docs/how-to/check-an-installation.md"

// Table is a list of checks. The first reads what the others expect.
type Table []check

// Installed are the checks of an installation.
var Installed = Table{
	{"configuration", []read{expect(install.Expect)}, configuration},
	{"kubernetes", []read{serverVersion}, kubernetes},
	{"features", []read{maxUnavailable}, features},
	compare("definition", Failure, "definitions of this version", map[string]rule{crd: definition}, list(setKind)),
	compare("webhooks", Failure, "webhook configurations as install writes them, with a CA bundle",
		map[string]rule{mutatingKind.Kind: webhook, validatingKind.Kind: webhook}, endpointsOfWebhooks),
	{"admission", []read{dryRun}, admission},
	compare("certificate", Failure, "webhook configurations that trust an authority for 30 days and more",
		map[string]rule{"Secret": certificate, mutatingKind.Kind: certificate, validatingKind.Kind: certificate}),
	compare("policies", Failure, "policies and bindings that exist", map[string]rule{
		operator.ValidatingPolicy: policy, operator.ValidatingPolicy + "Binding": policy,
		operator.MutatingPolicy: policy, operator.MutatingPolicy + "Binding": policy,
	}),
	compare("roles", Failure, "roles and bindings with their rights and subjects", map[string]rule{
		"ClusterRole": role, "ClusterRoleBinding": unlike(Failure), "Role": role, "RoleBinding": unlike(Failure),
	}),
	{"leader", []read{operatorLease}, leader},
	{"version", []read{operatorLease}, operatorVersion},
	{"leftovers", others, leftovers},
}

// Before are the checks whether an installation would go well: into a cluster that has nothing of it.
var Before = Table{
	{"kubernetes", []read{expect(install.Plan), serverVersion}, kubernetes},
	{"features", []read{maxUnavailable}, features},
	compare("definition", OK, "definitions that lose no field by install", map[string]rule{crd: replacement}, list(setKind)),
	{"rights", []read{rightsOfInstall}, rights},
	{"leftovers", others, leftovers},
}

// Run checks row by row.
func (t Table) Run(ctx context.Context, o Options) (lines []Line) {
	r := &reader{Options: o, site: &site{version: o.Version, testNamespace: o.TestNamespace, now: o.Now}}
	for _, c := range t {
		for _, line := range c.find(ctx, r).lines {
			line.Check, line.Help = c.name, page+"#"+c.name
			lines = append(lines, line)
		}
		if r.Objects == nil { // nothing can be compared
			break
		}
	}
	return lines
}

// find reads, and judges what was read, if anything was.
func (c check) find(ctx context.Context, r *reader) (f findings) {
	r.live, r.found, r.unread = map[*object]*object{}, map[string][]object{}, nil
	for _, read := range c.reads {
		if err := read(ctx, r); err != nil && !r.note(err) {
			f.fail("%v", err)
			return f
		}
	}
	if len(r.unread) == 0 || len(r.live)+len(r.found) > 0 {
		c.judge(r.site, &f)
	}
	if len(r.unread) > 0 {
		slices.Sort(r.unread)
		f.warn("not all was checked: you may not %s", install.Few(slices.Compact(r.unread)))
	}
	if len(f.lines) == 0 {
		f.ok("%s", f.well)
	}
	return f
}

// Result says how bad a finding is.
type Result string

// The results, by rising severity.
const (
	OK      Result = "ok"
	Warning Result = "warning"
	Failure Result = "failure"
)

// Line is one finding.
type Line struct {
	Check   string `json:"check"`
	Result  Result `json:"result"`
	Message string `json:"message"`
	// Help is the page and the heading of the documentation about the check.
	Help string `json:"help"`
}

// findings are the lines of one check.
type findings struct {
	lines []Line
	// well is the line if there is no other.
	well string
}

// add adds a line once.
func (f *findings) add(result Result, format string, args ...any) {
	if line := (Line{Result: result, Message: fmt.Sprintf(format, args...)}); !slices.Contains(f.lines, line) {
		f.lines = append(f.lines, line)
	}
}

func (f *findings) ok(format string, args ...any)   { f.add(OK, format, args...) }
func (f *findings) warn(format string, args ...any) { f.add(Warning, format, args...) }
func (f *findings) fail(format string, args ...any) { f.add(Failure, format, args...) }

// otherwise sets what is said if nothing is found, and everything could be read.
func (f *findings) otherwise(format string, args ...any) { f.well = fmt.Sprintf(format, args...) }
