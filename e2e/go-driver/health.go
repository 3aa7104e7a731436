//go:build !helper_0_35 && !helper_0_36

package main

import (
	"context"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// Since 0.37 a driver has to say that it reports no health.

func healthOptions() []kubeletplugin.Option {
	return []kubeletplugin.Option{kubeletplugin.HealthService(false)}
}

func (d *driver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}
