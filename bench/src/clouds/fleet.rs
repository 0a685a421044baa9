//! The machines of an account as EC2 describes them: with about as many elements as it sends, although a sync looks at few of
//! them, because reading them all is what an answer costs.

use std::collections::BTreeMap;

pub const REGIONS: [&str; 10] = [
    "ap-northeast-1",
    "ap-south-1",
    "ap-southeast-2",
    "ca-central-1",
    "eu-central-1",
    "eu-north-1",
    "eu-west-1",
    "sa-east-1",
    "us-east-1",
    "us-west-2",
];
/// The first word of a machine's name.
pub const ROLES: [&str; 8] = ["api", "batch", "cache", "database", "gateway", "proxy", "queue", "web"];
pub const TEAMS: usize = 40;
const ENVIRONMENTS: [&str; 4] = ["production", "production", "staging", "test"];
/// With their processors and MiB of memory.
pub const INSTANCE_TYPES: [(&str, u32, u32); 6] = [
    ("t3.small", 2, 2_048),
    ("t3.medium", 2, 4_096),
    ("m6i.large", 2, 8_192),
    ("m6i.xlarge", 4, 16_384),
    ("c6i.2xlarge", 8, 16_384),
    ("r6i.xlarge", 4, 32_768),
];
/// One machine in so many is stopped at first.
const STOPPED_EVERY: usize = 10;
/// One machine in so many changes at a time.
const CHANGED_EVERY: usize = 100;

/// The machines of an account by region, in the order of its lists.
pub struct Fleet(BTreeMap<&'static str, Vec<FleetMachine>>);

struct FleetMachine {
    /// In the account.
    number: usize,
    /// In the region.
    index: usize,
    is_running: bool,
    /// An item of a `reservationSet`. Kept, so that answers cost the machine that is measured as little as possible.
    xml: String,
}

impl Fleet {
    /// So many machines, spread evenly over these regions.
    pub fn new(count: usize, regions: &[&'static str]) -> Self {
        let mut fleet: BTreeMap<&'static str, Vec<FleetMachine>> = BTreeMap::new();
        for number in 0..count {
            let region = regions[number % regions.len()];
            let machines = fleet.entry(region).or_default();
            let index = machines.len();
            let is_running = !index.is_multiple_of(STOPPED_EVERY);
            let mut machine = FleetMachine { number, index, is_running, xml: String::new() };
            machine.render(region);
            machines.push(machine);
        }
        Fleet(fleet)
    }

    /// Machines of a region as items of a `reservationSet`, and the position behind them if there are more.
    pub fn list_page(&self, region: &str, from: usize, count: usize) -> (String, Option<usize>) {
        let machines = self.0.get(region).map(Vec::as_slice).unwrap_or_default();
        let items = machines.iter().skip(from).take(count).map(|machine| machine.xml.as_str()).collect();
        let next = from.saturating_add(count);
        (items, (next < machines.len()).then_some(next))
    }

    /// Stops or starts one machine in a hundred of each region; others in each round. Returns how many.
    pub fn change_one_percent(&mut self, round: usize) -> usize {
        let mut changed = 0;
        for (region, machines) in &mut self.0 {
            let is_next = |machine: &&mut FleetMachine| machine.index % CHANGED_EVERY == round % CHANGED_EVERY;
            for machine in machines.iter_mut().filter(is_next) {
                machine.is_running = !machine.is_running;
                machine.render(region);
                changed += 1;
            }
        }
        changed
    }

    pub fn count_stopped(&self) -> usize {
        self.0.values().flatten().filter(|machine| !machine.is_running).count()
    }
}

impl FleetMachine {
    /// Each machine is a reservation of its own, as those are that were not started together.
    fn render(&mut self, region: &str) {
        let (number, index) = (self.number, self.index);
        let (code, state) = if self.is_running { (16, "running") } else { (80, "stopped") };
        let (instance_type, vcpus, _) = INSTANCE_TYPES[index % INSTANCE_TYPES.len()];
        let private_ip = format!("10.{}.{}.{}", number >> 16, (number >> 8) & 255, number & 255);
        let dns = private_ip.replace('.', "-");
        // One that is stopped has no public address.
        let public_ip =
            if self.is_running { format!("198.18.{}.{}", (number >> 8) & 255, number & 255) } else { String::new() };
        let (disks, interface, tags) =
            (self.render_disks(), self.render_interface(region, &private_ip, &public_ip), self.render_tags());
        self.xml = format!(
            "<item><reservationId>r-{number:017x}</reservationId><ownerId>123456789012</ownerId><groupSet/><instancesSet><item>\
             <instanceId>i-{number:017x}</instanceId><imageId>ami-0c55b159cbfafe1f0</imageId>\
             <instanceState><code>{code}</code><name>{state}</name></instanceState>\
             <privateDnsName>ip-{dns}.{region}.compute.internal</privateDnsName><dnsName/><reason/><keyName>operations</keyName>\
             <amiLaunchIndex>0</amiLaunchIndex><productCodes/><instanceType>{instance_type}</instanceType>\
             <launchTime>2026-03-01T08:00:00.000Z</launchTime>\
             <placement><availabilityZone>{region}a</availabilityZone><groupName/><tenancy>default</tenancy></placement>\
             <monitoring><state>disabled</state></monitoring><subnetId>subnet-0b1c2d3e4f5a6b7c8</subnetId>\
             <vpcId>vpc-0a1b2c3d4e5f6a7b8</vpcId><privateIpAddress>{private_ip}</privateIpAddress>\
             <ipAddress>{public_ip}</ipAddress><sourceDestCheck>true</sourceDestCheck>\
             <groupSet><item><groupId>sg-0123456789abcdef0</groupId><groupName>default</groupName></item>\
             <item><groupId>sg-0fedcba9876543210</groupId><groupName>monitoring</groupName></item></groupSet>\
             <architecture>x86_64</architecture><rootDeviceType>ebs</rootDeviceType><rootDeviceName>/dev/xvda</rootDeviceName>\
             {disks}<virtualizationType>hvm</virtualizationType><clientToken>token-{number:08}</clientToken>{tags}\
             <hypervisor>xen</hypervisor>{interface}<iamInstanceProfile>\
             <arn>arn:aws:iam::123456789012:instance-profile/machine</arn><id>AIPA0123456789ABCDEFG</id></iamInstanceProfile>\
             <ebsOptimized>true</ebsOptimized><enaSupport>true</enaSupport>\
             <cpuOptions><coreCount>{}</coreCount><threadsPerCore>2</threadsPerCore></cpuOptions>\
             <capacityReservationSpecification><capacityReservationPreference>open</capacityReservationPreference>\
             </capacityReservationSpecification><hibernationOptions><configured>false</configured></hibernationOptions>\
             <enclaveOptions><enabled>false</enabled></enclaveOptions><metadataOptions><state>applied</state>\
             <httpTokens>required</httpTokens><httpPutResponseHopLimit>2</httpPutResponseHopLimit>\
             <httpEndpoint>enabled</httpEndpoint><httpProtocolIpv6>disabled</httpProtocolIpv6>\
             <instanceMetadataTags>disabled</instanceMetadataTags></metadataOptions>\
             <maintenanceOptions><autoRecovery>default</autoRecovery><rebootMigration>default</rebootMigration>\
             </maintenanceOptions><currentInstanceBootMode>legacy-bios</currentInstanceBootMode>\
             <platformDetails>Linux/UNIX</platformDetails><usageOperation>RunInstances</usageOperation>\
             <usageOperationUpdateTime>2026-03-01T08:00:00.000Z</usageOperationUpdateTime>\
             <privateDnsNameOptions><hostnameType>ip-name</hostnameType>\
             <enableResourceNameDnsARecord>false</enableResourceNameDnsARecord>\
             <enableResourceNameDnsAAAARecord>false</enableResourceNameDnsAAAARecord></privateDnsNameOptions>\
             </item></instancesSet></item>",
            vcpus / 2
        );
    }

    fn render_disks(&self) -> String {
        let disk = |device: &str, number: usize| {
            format!(
                "<item><deviceName>{device}</deviceName><ebs><volumeId>vol-{number:017x}</volumeId><status>attached</status>\
                 <attachTime>2026-03-01T08:00:01.000Z</attachTime><deleteOnTermination>true</deleteOnTermination></ebs></item>"
            )
        };
        let disks = [disk("/dev/xvda", 2 * self.number), disk("/dev/sdb", 2 * self.number + 1)];
        format!("<blockDeviceMapping>{}</blockDeviceMapping>", disks.concat())
    }

    fn render_tags(&self) -> String {
        let (role, number) = (ROLES[self.index % ROLES.len()], self.number);
        let environment = ENVIRONMENTS[self.index % ENVIRONMENTS.len()];
        let team = format!("team-{:02}", self.index % TEAMS);
        let tags = [
            ("Name", format!("{role}-{number:05}")),
            ("environment", environment.to_owned()),
            ("team", team),
            ("cost-center", format!("cc-{}", 4_000 + self.index % TEAMS)),
            ("managed-by", "terraform".to_owned()),
            ("backup", "daily".to_owned()),
        ];
        let items = tags.map(|(key, value)| format!("<item><key>{key}</key><value>{value}</value></item>"));
        format!("<tagSet>{}</tagSet>", items.concat())
    }

    fn render_interface(&self, region: &str, private_ip: &str, public_ip: &str) -> String {
        let (number, dns) = (self.number, private_ip.replace('.', "-"));
        let association = if public_ip.is_empty() {
            String::new()
        } else {
            format!(
                "<association><publicIp>{public_ip}</publicIp><publicDnsName/><ipOwnerId>amazon</ipOwnerId></association>"
            )
        };
        format!(
            "<networkInterfaceSet><item><networkInterfaceId>eni-{number:017x}</networkInterfaceId>\
             <subnetId>subnet-0b1c2d3e4f5a6b7c8</subnetId><vpcId>vpc-0a1b2c3d4e5f6a7b8</vpcId><description/>\
             <ownerId>123456789012</ownerId><status>in-use</status><macAddress>02:00:00:00:00:01</macAddress>\
             <privateIpAddress>{private_ip}</privateIpAddress>\
             <privateDnsName>ip-{dns}.{region}.compute.internal</privateDnsName><sourceDestCheck>true</sourceDestCheck>\
             <groupSet><item><groupId>sg-0123456789abcdef0</groupId><groupName>default</groupName></item>\
             <item><groupId>sg-0fedcba9876543210</groupId><groupName>monitoring</groupName></item></groupSet>\
             <attachment><attachmentId>eni-attach-{number:017x}</attachmentId><deviceIndex>0</deviceIndex>\
             <networkCardIndex>0</networkCardIndex><status>attached</status>\
             <attachTime>2026-03-01T08:00:00.000Z</attachTime><deleteOnTermination>true</deleteOnTermination></attachment>\
             {association}<privateIpAddressesSet><item><privateIpAddress>{private_ip}</privateIpAddress>\
             <privateDnsName>ip-{dns}.{region}.compute.internal</privateDnsName><primary>true</primary>{association}</item>\
             </privateIpAddressesSet><ipv6AddressesSet/><interfaceType>interface</interfaceType></item></networkInterfaceSet>"
        )
    }
}
