//! Bodies of answers.

pub fn instance(id: &str, state: &str, operation_id: Option<&str>) -> String {
    let operation = operation_id.map_or_else(String::new, |operation_id| {
        format!("<item><key>tenant-control:operation</key><value>{operation_id}</value></item>")
    });
    format!(
        "<item><instanceId>{id}</instanceId><imageId>ami-1</imageId>\
         <instanceState><code>16</code><name>{state}</name></instanceState>\
         <instanceType>t3.small</instanceType><placement><availabilityZone>eu-west-1a</availabilityZone></placement>\
         <privateIpAddress>10.0.0.5</privateIpAddress><ipAddress>203.0.113.9</ipAddress>\
         <stateReason><code>x</code><message>Client.UserInitiatedShutdown: User initiated</message></stateReason>\
         <networkInterfaceSet><item><ipv6AddressesSet><item><ipv6Address>2001:db8::5</ipv6Address></item>\
         </ipv6AddressesSet><privateIpAddressesSet><item><privateIpAddress>10.0.0.5</privateIpAddress>\
         <association><publicIp>203.0.113.9</publicIp></association></item><item>\
         <privateIpAddress>10.0.0.6</privateIpAddress></item></privateIpAddressesSet></item></networkInterfaceSet>\
         <tagSet><item><key>Name</key><value>web &amp; co</value></item><item><key>empty</key><value/></item>\
         {operation}</tagSet>\
         <cpuOptions><coreCount>1</coreCount><threadsPerCore>2</threadsPerCore></cpuOptions></item>"
    )
}

/// Each argument is the instances of one reservation.
pub fn instances(reservations: &[String], next_token: Option<&str>) -> String {
    let start = "<item><reservationId>r-1</reservationId><instancesSet>";
    let items: String =
        reservations.iter().flat_map(|instances| [start, instances, "</instancesSet></item>"]).collect();
    let token = next_token.map_or_else(|| "<nextToken/>".to_owned(), |token| format!("<nextToken>{token}</nextToken>"));
    answer_of("DescribeInstances", &format!("<reservationSet>{items}</reservationSet>{token}"))
}

pub fn instance_types() -> String {
    answer_of(
        "DescribeInstanceTypes",
        "<instanceTypeSet><item><instanceType>t3.small</instanceType><vCpuInfo><defaultVCpus>2</defaultVCpus></vCpuInfo>\
         <memoryInfo><sizeInMiB>2048</sizeInMiB></memoryInfo></item><item><instanceType>c5d.large</instanceType>\
         <vCpuInfo><defaultVCpus>2</defaultVCpus></vCpuInfo><memoryInfo><sizeInMiB>4096</sizeInMiB></memoryInfo>\
         <instanceStorageInfo><totalSizeInGB>50</totalSizeInGB></instanceStorageInfo></item></instanceTypeSet>",
    )
}

pub fn images() -> String {
    let image = |id: &str, name: &str, date: &str| {
        format!("<item><imageId>{id}</imageId><name>{name}</name><creationDate>{date}</creationDate></item>")
    };
    let items = [
        image("ami-old", "al2023-ami-2023.1.20250101.0-kernel-6.1-x86_64", "2025-01-01T00:00:00.000Z"),
        image("ami-new", "al2023-ami-2023.9.20260101.0-kernel-6.1-x86_64", "2026-01-01T00:00:00.000Z"),
        image(
            "ami-ubuntu",
            "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20251101",
            "2025-11-01T00:00:00.000Z",
        ),
    ];
    answer_of("DescribeImages", &format!("<imagesSet>{}</imagesSet>", items.concat()))
}

pub fn regions() -> String {
    let region =
        |name: &str| format!("<item><regionName>{name}</regionName><optInStatus>opted-in</optInStatus></item>");
    let items = [region("us-east-1"), region("eu-west-1")].concat();
    answer_of("DescribeRegions", &format!("<regionInfo>{items}</regionInfo>"))
}

pub fn identity() -> String {
    answer_of(
        "GetCallerIdentity",
        "<GetCallerIdentityResult><Arn>arn:aws:iam::123456789012:user/ops</Arn><UserId>AIDA</UserId>\
         <Account>123456789012</Account></GetCallerIdentityResult>",
    )
}

pub fn session(expiration: &str) -> String {
    answer_of(
        "AssumeRole",
        &format!(
            "<AssumeRoleResult><Credentials><AccessKeyId>ASIASESSION</AccessKeyId>\
             <SecretAccessKey>canary-session-secret</SecretAccessKey><SessionToken>canary-session-token</SessionToken>\
             <Expiration>{expiration}</Expiration></Credentials></AssumeRoleResult>"
        ),
    )
}

pub fn answer_of(action: &str, content: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{action}Response xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\">\
         <requestId>1</requestId>{content}</{action}Response>"
    )
}

/// As EC2 writes it.
pub fn error(code: &str, message: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?><Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>\
         <RequestID>1</RequestID></Response>"
    )
}

/// As STS writes it.
pub fn sts_error(code: &str, message: &str) -> String {
    format!(
        "<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>\
         <RequestId>1</RequestId></ErrorResponse>"
    )
}
