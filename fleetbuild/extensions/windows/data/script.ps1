# The probe of a Windows node: prints its hardware and software in one round trip. ASCII only.
# For Windows PowerShell 5.1 and PowerShell 7. Needs no elevation. Add-Type compiles a few lines of C#,
# for which Windows PowerShell uses the folder for temporary files; nothing else is written.
# Sections are framed as in script.sh: "NONCE begin NAME" and "NONCE end NAME STATUS".
param([string]$Nonce, [int]$Limit = 10)

$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
$WarningPreference = 'SilentlyContinue'
[Console]::OutputEncoding = New-Object System.Text.UTF8Encoding($false)
$system32 = [Environment]::GetFolderPath('System')
$programs = $env:ProgramFiles
$programs32 = ${env:ProgramFiles(x86)}
$maxInterpreters = 16

function Write-Line([string]$Text) {
    [Console]::Out.Write($Text + "`n")
}

# A section that does not exist here, or fails, prints nothing and ends with a status other than 0.
function Write-Section([string]$Name, [scriptblock]$Read) {
    Write-Line "$Nonce begin $Name"
    $status = 1
    $script:late = $false
    try {
        & $Read | ForEach-Object {
            $status = 0
            Write-Line ([string]$_)
        }
    } catch {
        $status = 1
    }
    if ($late) {
        Write-Line "fleetbuild: no answer within $Limit s"
        $status = 124
    }
    Write-Line ''
    Write-Line "$Nonce end $Name $status"
}

# Runs a program with a time limit, and returns its output and exit code.
function Invoke-Program([string]$Path, [string]$Arguments) {
    $start = New-Object System.Diagnostics.ProcessStartInfo
    $start.FileName = $Path
    $start.Arguments = $Arguments
    $start.UseShellExecute = $false
    $start.CreateNoWindow = $true
    $start.RedirectStandardInput = $true
    $start.RedirectStandardOutput = $true
    $start.RedirectStandardError = $true
    $process = [System.Diagnostics.Process]::Start($start)
    $process.StandardInput.Close()
    $output = $process.StandardOutput.ReadToEndAsync()
    $complaint = $process.StandardError.ReadToEndAsync()
    if (-not $process.WaitForExit($Limit * 1000)) {
        $process.Kill()
        $script:late = $true
        throw "no answer within $Limit s"
    }
    if (-not $output.Wait(2000)) {
        throw 'its output did not end'
    }
    $text = $output.Result
    if (($text.Trim() -eq '') -and $complaint.Wait(2000)) {
        $text = $complaint.Result
    }
    return New-Object psobject -Property @{ Text = $text; Code = $process.ExitCode }
}

function Read-Cim([string]$Class, [string[]]$Properties) {
    foreach ($object in @(Get-CimInstance -ClassName $Class -Property $Properties -OperationTimeoutSec $Limit)) {
        foreach ($property in $Properties) {
            "$property : $($object.$property)"
        }
        ''
    }
}

function Read-Uname {
    $machine = $env:PROCESSOR_ARCHITECTURE
    if ($env:PROCESSOR_ARCHITEW6432) {
        $machine = $env:PROCESSOR_ARCHITEW6432
    }
    $version = (Get-CimInstance -ClassName Win32_OperatingSystem -OperationTimeoutSec $Limit).Version
    "Windows $version $machine"
}

function Read-Processors {
    Read-Cim 'Win32_Processor' @(
        'Name', 'Manufacturer', 'Description', 'NumberOfCores', 'NumberOfLogicalProcessors')
}

# --- CPU features ---

# What Windows says of the CPU: numbers of IsProcessorFeaturePresent, and the enabled bits of XCR0.
$kernel32 = @'
using System.Runtime.InteropServices;
public static class FleetbuildKernel32 {
    [DllImport("kernel32.dll")]
    [return: MarshalAs(UnmanagedType.Bool)]
    public static extern bool IsProcessorFeaturePresent(uint feature);
    [DllImport("kernel32.dll")]
    public static extern ulong GetEnabledXStateFeatures();
}
'@

# CPUID itself, which .NET 5 and newer can run: PowerShell 7.1, which need not be the shell of the login.
$cpuid = @'
foreach ($leaf in @(@(0, 0), @(1, 0), @(7, 0), @(7, 1), @(-2147483648, 0), @(-2147483647, 0))) {
    $r = [System.Runtime.Intrinsics.X86.X86Base]::CpuId($leaf[0], $leaf[1])
    'cpuid {0:X8} {1:X8} {2:X8} {3:X8} {4:X8} {5:X8}' -f $leaf[0], $leaf[1], $r.Item1, $r.Item2, $r.Item3, $r.Item4
}
'@

function Read-CpuFeatures {
    try {
        Add-Type -TypeDefinition $kernel32
        foreach ($number in 0..95) {
            if ([FleetbuildKernel32]::IsProcessorFeaturePresent([uint32]$number)) {
                "feature $number"
            }
        }
        'xstate {0:X8}' -f [FleetbuildKernel32]::GetEnabledXStateFeatures()
    } catch {
        '' # a policy forbids Add-Type
    }
    $pwsh = Join-Path $programs 'PowerShell\7\pwsh.exe'
    $found = Get-Command -Name 'pwsh.exe' -CommandType Application -ErrorAction SilentlyContinue |
        Select-Object -First 1
    if ($found) {
        $pwsh = $found.Path
    }
    if (Test-Path -LiteralPath $pwsh -PathType Leaf) {
        $encoded = [Convert]::ToBase64String([System.Text.Encoding]::Unicode.GetBytes($cpuid))
        try {
            $answer = Invoke-Program $pwsh "-NoProfile -NonInteractive -EncodedCommand $encoded"
            if ($answer.Code -eq 0) {
                $answer.Text
            }
        } catch {
            $script:late = $false # Windows has answered above
        }
    }
}

# --- Interpreters ---

# One line for the interpreter that runs it. No double quotes, because it is an argument.
$about = @'
import importlib.util as u, os, platform, sys, sysconfig as s
v = sys.version_info
t = (s.get_config_var('EXT_SUFFIX') or '').split('.')[1:2]
n = t[0].partition('-')[2] if t else 'unknown'
m = getattr(sys, 'abiflags', '') or ('t' if s.get_config_var('Py_GIL_DISABLED') else '')
w = [sys.executable, platform.python_version(), '%s-%d%d%s-%s' % (sys.implementation.name, v[0], v[1], m, n)]
w += ['venv'] if u.find_spec('venv') and u.find_spec('ensurepip') else []
w += ['headers'] if os.path.exists(os.path.join(s.get_paths()['include'], 'Python.h')) else ['-']
print(' '.join(w))
'@

function Get-Interpreters {
    foreach ($folder in "$env:PATH".Split(';')) {
        # Windows puts a program of this name there that opens its store.
        if ($folder -and ($folder -notlike '*\WindowsApps*')) {
            $folder.Trim('"').TrimEnd('\') + '\python.exe'
        }
    }
    foreach ($hive in 'HKLM:\SOFTWARE\Python', 'HKCU:\SOFTWARE\Python') {
        if (Test-Path -LiteralPath $hive) {
            foreach ($key in @(Get-ChildItem -LiteralPath $hive -Recurse -ErrorAction SilentlyContinue)) {
                if ($key.PSChildName -eq 'InstallPath') {
                    $folder = $key.GetValue('')
                    if ($folder) {
                        "$folder".TrimEnd('\') + '\python.exe'
                    }
                }
            }
        }
    }
    foreach ($root in $env:USERPROFILE, $env:ProgramData) {
        foreach ($conda in 'miniconda3', 'anaconda3', 'miniforge3') {
            $base = [System.IO.Path]::Combine($root, $conda)
            [System.IO.Path]::Combine($base, 'python.exe')
            $environments = [System.IO.Path]::Combine($base, 'envs')
            if (Test-Path -LiteralPath $environments) {
                foreach ($environment in @(Get-ChildItem -LiteralPath $environments -Directory)) {
                    [System.IO.Path]::Combine($environment.FullName, 'python.exe')
                }
            }
        }
    }
}

function Read-Python {
    $encoded = [Convert]::ToBase64String([System.Text.Encoding]::ASCII.GetBytes($about))
    $arguments = "-I -S -B -X utf8 -c exec(__import__('base64').b64decode('$encoded'))"
    $seen = @{}
    foreach ($path in @(Get-Interpreters)) {
        $name = $path.ToLowerInvariant()
        if ($seen.ContainsKey($name) -or ($seen.Count -ge $maxInterpreters)) {
            continue
        }
        if (-not (Test-Path -LiteralPath $path -PathType Leaf)) {
            continue
        }
        $seen[$name] = $true
        try {
            $answer = Invoke-Program $path $arguments
            if ($answer.Code -eq 0) {
                $answer.Text.Trim()
            }
        } catch {
            continue
        }
    }
}

# --- GPUs ---

function Find-NvidiaSmi {
    foreach ($folder in $system32, "$programs\NVIDIA Corporation\NVSMI") {
        $path = [System.IO.Path]::Combine($folder, 'nvidia-smi.exe')
        if (Test-Path -LiteralPath $path -PathType Leaf) {
            return $path
        }
    }
    return $null
}

function Read-NvidiaSmi {
    $path = Find-NvidiaSmi
    if ($path) {
        $columns = 'driver_version,memory.total,uuid --format=csv'
        $answer = Invoke-Program $path "--query-gpu=index,name,compute_cap,$columns"
        if ($answer.Text -like '*compute_cap*is not*') {
            # an older driver, which does not know that column
            $answer = Invoke-Program $path "--query-gpu=index,name,$columns"
        }
        $answer.Text.Trim()
    }
}

# The lines of lspci -Dnn for display controllers, from the identifiers of Plug and Play.
function Read-Lspci {
    $number = 0
    foreach ($vendor in '10DE', '1002', '8086') {
        $filter = "PNPDeviceID LIKE 'PCI\\VEN_$vendor%'"
        foreach ($device in @(Get-CimInstance -ClassName Win32_PnPEntity -Filter $filter -OperationTimeoutSec $Limit)) {
            $display = @($device.CompatibleID) -match 'CC_(03[0-9A-F]{2})'
            if (($device.PNPDeviceID -match 'DEV_([0-9A-F]{4})') -and $display) {
                $id = $Matches[1].ToLowerInvariant()
                $null = "$display" -match 'CC_(03[0-9A-F]{2})'
                $class = $Matches[1].ToLowerInvariant()
                $slot = '{0:x4}:00:00.0' -f $number
                $number += 1
                "$slot Display controller [$class]: $($device.Name) [$($vendor.ToLowerInvariant()):$id]"
            }
        }
    }
}

# --- Tools ---

function Get-Version([string]$Text, [string]$Pattern) {
    if ($Text -match $Pattern) {
        return $Matches[1]
    }
    return $null
}

function Read-Tool([string]$Name, [string]$Path, [string]$Arguments, [string]$Pattern) {
    try {
        $version = Get-Version (Invoke-Program $Path $Arguments).Text $Pattern
        if ($version) {
            "$Name $version"
        }
    } catch {
        return
    }
}

# Each MSVC toolset of each Visual Studio 2017 or newer: the folders below VC\Tools\MSVC.
function Read-Msvc {
    $vswhere = "$programs32\Microsoft Visual Studio\Installer\vswhere.exe"
    if (-not (Test-Path -LiteralPath $vswhere -PathType Leaf)) {
        return
    }
    $answer = Invoke-Program $vswhere '-products * -property installationPath'
    foreach ($folder in $answer.Text.Split("`n")) {
        if ($folder.Trim() -eq '') {
            continue
        }
        $tools = [System.IO.Path]::Combine($folder.Trim(), 'VC\Tools\MSVC')
        if (Test-Path -LiteralPath $tools) {
            foreach ($toolset in @(Get-ChildItem -LiteralPath $tools -Directory)) {
                "msvc $($toolset.Name)"
            }
        }
    }
}

function Read-Cuda {
    $root = "$programs\NVIDIA GPU Computing Toolkit\CUDA"
    if (Test-Path -LiteralPath $root) {
        foreach ($toolkit in @(Get-ChildItem -LiteralPath $root -Directory)) {
            $nvcc = [System.IO.Path]::Combine($toolkit.FullName, 'bin\nvcc.exe')
            if (Test-Path -LiteralPath $nvcc) {
                Read-Tool 'nvcc' $nvcc '--version' 'release (\d+\.\d+)'
            }
        }
    }
    foreach ($header in @(Get-ChildItem -Path "$root\*\include\cudnn_version.h", "$programs\NVIDIA\CUDNN\*\include\cudnn_version.h" -ErrorAction SilentlyContinue)) {
        $text = [System.IO.File]::ReadAllText($header.FullName)
        $parts = foreach ($part in 'MAJOR', 'MINOR', 'PATCHLEVEL') {
            Get-Version $text "#define CUDNN_$part\s+(\d+)"
        }
        "cudnn $($parts -join '.')"
    }
}

function Read-Toolchain {
    Read-Msvc
    Read-Cuda
    foreach ($name in 'cmake', 'ninja', 'git') {
        $found = Get-Command -Name "$name.exe" -CommandType Application -ErrorAction SilentlyContinue |
            Select-Object -First 1
        if ($found) {
            Read-Tool $name $found.Path '--version' '(\d+\.\d+[.\d]*)'
        }
    }
    foreach ($mkl in @(Get-ChildItem -Path "$programs32\Intel\oneAPI\mkl\2*" -Directory -ErrorAction SilentlyContinue)) {
        "oneapi-mkl $($mkl.Name)"
    }
}

# --- All sections ---

Write-Line ''
Write-Section 'uname' ${function:Read-Uname}
Write-Section 'processors' ${function:Read-Processors}
Write-Section 'cpu-features' ${function:Read-CpuFeatures}
Write-Section 'nvidia-smi' ${function:Read-NvidiaSmi}
Write-Section 'lspci' ${function:Read-Lspci}
Write-Section 'toolchain' ${function:Read-Toolchain}
Write-Section 'python' ${function:Read-Python}
exit 0
