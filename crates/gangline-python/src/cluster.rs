//! Workers on other machines: the option `nats` of a pool.

use std::ffi::OsString;
use std::time::Duration;

use gangline_nats::Nats;
use pyo3::prelude::*;

use crate::errors::Refused;
use crate::times::read_time;

/// The workers of a broker, as the package's Python has checked the option. Times are texts.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ClusterOption {
    url: String,
    credentials: Option<OsString>,
    root_certificates: Option<OsString>,
    is_insecure: bool,
    namespace: String,
    pub(crate) max_workers: usize,
    wait_for: Option<String>,
    lease_time: Option<String>,
}

impl ClusterOption {
    /// The same for the library. A pool begins with this number of workers.
    pub(crate) fn nats(&self, min_workers: Option<usize>) -> Result<Nats, Refused> {
        let nats = Nats::connect(&self.url)
            .namespace(&self.namespace)
            .max_workers(self.max_workers)
            .min_workers(min_workers.unwrap_or(1));
        let nats = match &self.credentials {
            Some(path) => nats.credentials(path),
            None => nats,
        };
        let nats = match &self.root_certificates {
            Some(path) => nats.root_certificates(path),
            None => nats,
        };
        let nats = if self.is_insecure { nats.insecure() } else { nats };
        let time = |name, text: &Option<String>| {
            text.as_deref().map(|text| read_time(name, text)).transpose()
        };
        let set = |nats, time: Option<Duration>, setter: fn(Nats, Duration) -> Nats| match time {
            Some(time) => setter(nats, time),
            None => nats,
        };
        let nats = set(nats, time("wait_for", &self.wait_for)?, Nats::wait_for);
        Ok(set(nats, time("lease_time", &self.lease_time)?, Nats::lease_time))
    }
}
