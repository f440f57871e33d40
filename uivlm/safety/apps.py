"""Apps in which a wrong tap does the most harm: they install, grant permissions, pay, call, change settings.

Names of AOSP and Google: the manifests in android.googlesource.com (platform/packages). Names of makers:
github.com/0x192/universal-android-debloater (uad_lists.json) for stores, wallets and phones,
github.com/judemanutd/AutoStarter for permission managers, github.com/gkd-kit/subscription for installers.
Makers' apps that keep AOSP's package name are in the first group. A name may end with `*`.
"""

AOSP = (
    "com.android.settings",
    "com.android.packageinstaller",
    "com.android.permissioncontroller",
    "com.android.certinstaller",
    "com.android.managedprovisioning",
    "com.android.vpndialogs",
    "com.android.systemui",
    "com.android.phone",
    "com.android.server.telecom",
    "com.android.incallui",
    "com.android.dialer",
    "com.android.mms",
    "com.android.messaging",
    "com.android.stk*",
)
GOOGLE = (
    "com.android.vending",
    "com.google.android.packageinstaller",
    "com.google.android.permissioncontroller",
    "com.google.android.gms",
    "com.google.android.dialer",
    "com.google.android.apps.messaging",
    "com.google.android.apps.walletnfcrel",
    "com.google.android.apps.nbu.paisa.user",
)
SAMSUNG = (
    "com.sec.android.app.samsungapps",
    "com.samsung.android.packageinstaller",
    "com.samsung.android.permissioncontroller",
    "com.samsung.android.dialer",
    "com.samsung.android.incallui",
    "com.samsung.android.messaging",
    "com.samsung.android.spay*",
    "com.samsung.android.lool",
    "com.samsung.knox.securefolder*",
)
XIAOMI = (
    "com.miui.packageinstaller",
    "com.miui.global.packageinstaller",
    "com.miui.securitycenter",
    "com.lbe.security.miui",
    "com.xiaomi.market",
    "com.xiaomi.mipicks",
    "com.xiaomi.misettings",
    "com.mipay.wallet*",
    "com.miui.nextpay",
)
HUAWEI_AND_HONOR = (
    "com.huawei.appmarket",
    "com.huawei.systemmanager",
    "com.huawei.android.hwpay",
    "com.huawei.wallet",
    "com.hihonor.appmarket",
    "com.hihonor.systemmanager",
)
OPPO_ONEPLUS_REALME = (
    "com.heytap.market",
    "com.oppo.market",
    "com.oplus.appdetail",
    "com.oplus.safecenter",
    "com.oplus.securitypermission",
    "com.oplus.pay",
    "com.coloros.safecenter",
    "com.coloros.securitypermission",
    "com.coloros.securepay",
    "com.coloros.wallet",
    "com.oneplus.dialer",
    "com.oneplus.mms",
)
VIVO = ("com.bbk.appstore", "com.vivo.appstore", "com.vivo.permissionmanager", "com.iqoo.secure")
OTHERS = ("com.amazon.venezia", "com.transsnet.store", "com.tct.dialer")

SENSITIVE_APPS = AOSP + GOOGLE + SAMSUNG + XIAOMI + HUAWEI_AND_HONOR + OPPO_ONEPLUS_REALME + VIVO + OTHERS
