//go:build helper_0_35 || helper_0_36

package main

import "k8s.io/dynamic-resource-allocation/kubeletplugin"

// Before 0.37 the helper asks only those drivers for health that have a service for it.

func healthOptions() []kubeletplugin.Option { return nil }
