//! Parses DEVICE, the description of a scanned device, which has more levels than an inventory.
//!
//! An inventory of a device has its own fields in INFO, a discovery has them directly in DEVICE.

use super::collector::ReportSection;
use super::refusal::ReportRefusal;
use super::scanned::ScanSection;
use super::xml::{SECTION_DEPTH, XmlReportReader};

impl XmlReportReader<'_> {
    pub fn read_device(&mut self) -> Result<(), ReportRefusal> {
        while let Some((name, is_empty)) = self.next_child()? {
            let name = name.as_str();
            let (section, is_list) = match name {
                "info" => (ScanSection::Device, false),
                "ports" => (ScanSection::Ports, true),
                "components" => (ScanSection::Components, true),
                "consumables" => (ScanSection::Consumables, true),
                "firmwares" => (ScanSection::Firmwares, false),
                "cartridges" => (ScanSection::Cartridges, false),
                "pagecounters" => (ScanSection::PageCounters, false),
                "drives" if !is_empty => {
                    self.read_entry(ReportSection::Drives)?;
                    continue;
                }
                // The agent says why it could not read the device.
                "error" => {
                    self.collector.scan().device.has_failed = true;
                    if !is_empty {
                        self.skip_element(SECTION_DEPTH + 1)?;
                    }
                    continue;
                }
                _ if is_empty => continue,
                _ => {
                    self.read_scan_field(ScanSection::Device, name)?;
                    continue;
                }
            };
            self.collector.open_section(ReportSection::Scan(section));
            match (is_empty, is_list) {
                (true, _) => {}
                (false, true) => self.read_scan_list(section)?,
                (false, false) => self.read_scan_entry(section)?,
            }
        }
        Ok(())
    }

    /// A list: each child element is an entry.
    fn read_scan_list(&mut self, section: ScanSection) -> Result<(), ReportRefusal> {
        while let Some((_, is_empty)) = self.next_child()? {
            if !is_empty {
                self.read_scan_entry(section)?;
            }
        }
        Ok(())
    }

    fn read_scan_entry(&mut self, section: ScanSection) -> Result<(), ReportRefusal> {
        self.collector.open_entry(ReportSection::Scan(section))?;
        while let Some((name, is_empty)) = self.next_child()? {
            if !is_empty {
                self.read_scan_field(section, name.as_str())?;
            }
        }
        self.collector.close_entry(ReportSection::Scan(section))
    }

    /// A field. Addresses and VLANs are lists; the neighbours of a port are skipped.
    fn read_scan_field(&mut self, section: ScanSection, field: &str) -> Result<(), ReportRefusal> {
        match (section, field) {
            (ScanSection::Ports, "vlans") => self.read_vlans(),
            (_, "ips") => {
                while let Some((_, is_empty)) = self.next_child()? {
                    if !is_empty {
                        self.set_scan_field(section, "ips")?;
                    }
                }
                Ok(())
            }
            _ => self.set_scan_field(section, field),
        }
    }

    fn read_vlans(&mut self) -> Result<(), ReportRefusal> {
        while let Some((_, is_empty)) = self.next_child()? {
            if is_empty {
                continue;
            }
            self.collector.open_entry(ReportSection::Scan(ScanSection::Vlans))?;
            while let Some((name, is_empty)) = self.next_child()? {
                if !is_empty {
                    self.set_scan_field(ScanSection::Vlans, name.as_str())?;
                }
            }
            self.collector.close_entry(ReportSection::Scan(ScanSection::Vlans))?;
        }
        Ok(())
    }

    fn set_scan_field(&mut self, section: ScanSection, field: &str) -> Result<(), ReportRefusal> {
        let value = self.read_value()?;
        self.collector.set_field(ReportSection::Scan(section), field, &value);
        Ok(())
    }
}
