// Package scheduling is a plugin for kube-scheduler that binds no pod to a claim
// which is going: ClaimProtection.
//
//	PreFilter   a claim on its way out is as good as missing       from the scheduler's cache
//	PreBind     every claim is read from the API server, and the   live, onto the version read
//	            pod is written on it (the use record)
//	Bind        of kube-scheduler, only if both went well
//
// A claim that goes between the reading and the write refuses the write. So a
// claim that is terminating names every pod that this scheduler may have bound to
// it, and whoever takes its last finalizer needs no kubelet's word.
//
// A profile enables it under multiPoint. Enabled under preFilter as well it comes
// before the built-in VolumeBinding, and a pod whose claim has gone at last says so.
//
// Over what a stock kube-scheduler may do it needs to patch claims, which stock
// roles allow, and, where the operator's policies guard the words on claims, the
// verb release on claims.protection.lockstep.dev.
//
// It knows the framework of kube-scheduler and nothing else of a scheduler: build
// it into one of your own with app.WithPlugin(scheduling.Name, scheduling.New). It
// refuses to know how a claim is released, and what holds one besides pods.
package scheduling
